#!/usr/bin/env python3
"""Runs `fwa bench` and its public peers on the same shapes, one after the other on an idle machine, and prints tables of
ratios in Markdown. Everything measured stands in --out as JSON lines, the tables in compare.md.

    python3 tests/peers/compare.py --fwa build/fwa --out peers
    python3 tests/peers/compare.py --fwa build/fwa --out peers --only ops --fla FOLDER --force
    python3 tests/peers/compare.py --fwa build/fwa --out peers --only rules --sizes small:64,medium:32
    python3 tests/peers/compare.py --fwa build/fwa --out peers --only ddp --ranks 2
    python3 tests/peers/compare.py --fwa build/fwa --out peers --device cpu --threads 2

ops: all rules with CUDA kernels beside flash-linear-attention and PyTorch's attention (gpu_ops.py says what --fla and --force are).
step: configs/lm/transformer.yaml beside a compiled PyTorch model (torch_step.py), the best of the --torch variants; on a
CPU configs/lm/tiny.yaml with softmax attention. ddp: the same on --ranks GPUs, fwa under mpirun, PyTorch under torchrun.
rules: a step of every rule's configuration of each of the --sizes, NAME:SEQUENCES of 1024 tokens, with the Transformer in
PyTorch beside them; MFU by fwa's count of FLOPs for both, memory: in use on the device, and what of it holds tensors.
A command that fails or takes longer than --timeout leaves its line out, and says so at the end; so do those for which
--total leaves no time.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Which rules there are says `fwa info`. The public operator that computes the same as a rule or, for falcon1, falcon1a and
# falcon3a, the nearest; and the rules that none comes near.
PEERS = {"softmax": "sdpa", "linear_attention": "simple_gla_constant", "retnet": "simple_gla_constant",
         "falcon1a": "simple_gla", "falcon3a": "simple_gla", "deltanet": "delta_rule", "falcon1": "delta_rule",
         "gated_deltanet": "gated_delta_rule"}
NO_PEER = {"mamba2", "falcon2a", "falcon2", "falcon3"}
VARIANTS = ["--weights bf16 --attention flash", "--weights bf16 --attention cudnn",
            "--weights autocast --attention flash"]


class Runner:
    def __init__(self, args):
        self.args, self.failures, self.ends = args, [], time.monotonic() + args.total
        self.out = pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)

    def rows(self, name, command):
        """The JSON lines that `command` prints; they go to NAME.jsonl, what it says else to NAME.log."""
        command = [str(word) for word in command]
        print("running:", " ".join(command), file=sys.stderr)
        began = time.monotonic()
        limit = min(self.args.timeout, self.ends - began)
        if limit < 1:
            self.failures.append(f"`{' '.join(command)}`: no time left")
            return []
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=ROOT)
            output, errors, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            output, errors = ((x or b"").decode() for x in (late.stdout, late.stderr))
            code = "time-out"
        except OSError as failure:
            output, errors, code = "", str(failure), "not started"
        print(f"  {time.monotonic() - began:.1f} s", file=sys.stderr)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        with open(self.out / f"{name}.log", "a", encoding="utf-8") as log:
            log.write("$ " + " ".join(command) + "\n" + errors)
        with open(self.out / f"{name}.jsonl", "a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        if code != 0:
            last = (errors.strip().splitlines() or [""])[-1]
            self.failures.append(f"`{' '.join(command)}`: {code}: {last}")
        return [json.loads(line) for line in lines]


def text(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"


def ratio(ours, theirs):
    return None if not ours or not theirs else ours / theirs


def known_rules(fwa):
    """Name -> whether it has CUDA kernels, in the order of `fwa info`; ends the program where that, PEERS and NO_PEER
    disagree."""
    try:
        done = subprocess.run([fwa, "info"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as failure:
        sys.exit(f"compare.py: {failure}")
    rules, section = {}, ""
    for line in done.stdout.splitlines():
        section = line.split()[0] if line[:1].isalpha() else section
        if section == "Rules" and re.match(r"  [a-z]", line):
            rules[line.split()[0]] = line.split()[-1] == "cuda"
    problems = [f"{rule}: name its peer in PEERS, or that it has none in NO_PEER"
                for rule in rules if (rule in PEERS) == (rule in NO_PEER)]
    problems += [f"{rule}: `fwa info` has no such rule" for rule in sorted({*PEERS, *NO_PEER} - rules.keys())]
    if problems:
        sys.exit("\n".join(f"compare.py: {problem}" for problem in problems))
    return rules


def peer_ops(runner):
    """(shape, operator) -> row. One command for all: starting Python and loading kernels take longer than measuring."""
    args = runner.args
    others = sorted(set(PEERS.values()) - {"sdpa"})
    peers = args.peers or ",".join(["sdpa", "sdpa_flash", *others])
    extra = (["--fla", args.fla] if args.fla else []) + (["--force"] if args.force else [])
    rows = runner.rows("peer_ops", [sys.executable, HERE / "gpu_ops.py", "--ops", peers, "--shapes", args.shapes, *extra])
    return {("x".join(str(row[letter]) for letter in "BTHK"), row["op"]): row for row in rows}


def own_ops(runner, rules):
    """(shape, rule, pass) -> ms."""
    found = {}
    for shape in runner.args.shapes.split(","):
        B, T, H, K = shape.split("x")
        sizes = ["--B", B, "--T", T, "--H", H, "--K", K, "--V", K]
        rows = runner.rows("fwa_ops", [runner.args.fwa, "bench", "op", *rules, *sizes, "--json", "--backend", "cuda"])
        found.update({(shape, row["name"], row["pass"]): row["ms_median"] for row in rows})
    return found


def ops_table(runner):
    args = runner.args
    lines = []
    rules = [rule for rule, cuda in known_rules(args.fwa).items() if cuda]
    ours, peers = own_ops(runner, rules), peer_ops(runner)
    for shape in args.shapes.split(","):
        B, T, H, K = shape.split("x")
        ms = {(rule, which): value for (at, rule, which), value in ours.items() if at == shape}
        theirs = {op: row for (at, op), row in peers.items() if at == shape}
        lines += [f"B {B}, T {T}, {H} heads of {K}, bf16, ms; ratio: ours / theirs, below 1 is faster", "",
                  "| rule | forward | forward + backward | peer | forward | forward + backward | ratio | ratio |",
                  "|---|---|---|---|---|---|---|---|"]
        for rule in rules:
            peer = PEERS.get(rule, "")
            forward, backward = ms.get((rule, "forward")), ms.get((rule, "backward"))
            both = forward + backward if forward and backward else None
            row = theirs.get(peer, {})
            wrong = " (gradients wrong)" if row.get("backward_right") is False else ""
            wrong = f" ({row['refused']})" if "refused" in row else wrong
            values = [text(forward), text(both), peer + wrong, text(row.get("forward_ms")), text(row.get("both_ms")),
                      text(ratio(forward, row.get("forward_ms")), 2), text(ratio(both, row.get("both_ms")), 2)]
            lines.append(f"| {rule} | " + " | ".join(values) + " |")
        lines.append("")
    return lines


def step_commands(args, ranks):
    """Ours, and the start of theirs."""
    if args.device == "cpu":
        ours = [args.fwa, "bench", "step", "configs/lm/tiny.yaml", "model.mixer.main.rule=softmax", "run.backend=cpu",
                f"run.threads={args.threads}", "--steps", 8]
        return ours, [sys.executable, HERE / "torch_step.py", "--threads", args.threads]
    ours = [args.fwa, "bench", "step", "configs/lm/transformer.yaml", "run.backend=cuda",
            f"train.micro_batch={args.batch}", f"train.global_batch={ranks * args.batch}", "--steps", 20]
    theirs = [sys.executable, HERE / "torch_step.py"]
    if ranks > 1:
        ours = [shutil.which("mpirun") or "mpirun", "--allow-run-as-root", "-np", ranks, *ours]
        theirs = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks,
                  HERE / "torch_step.py"]
    return ours, [*theirs, "--device", "cuda", "--preset", "small", "--batch", args.batch]


def step_table(runner, ranks):
    args = runner.args
    ours, theirs = step_commands(args, ranks)
    own = runner.rows(f"fwa_step_{ranks}", ours)
    variants = args.torch or (["", "--compile"] if args.device == "cpu" else ["--compile " + v for v in VARIANTS])
    rows = [row for v in variants for row in runner.rows(f"torch_step_{ranks}", [*theirs, *v.split()])]
    if not own or not rows:
        return []
    best = max(rows, key=lambda row: row["tokens_per_s"])
    lines = [f"Whole training step, {own[0]['parameters']:,} parameters, {own[0]['tokens']:.0f} tokens, {ranks} rank(s)", "",
             "| | ms | tokens/s | ours / theirs |", "|---|---|---|---|",
             f"| fwa | {own[0]['ms_median']:.1f} | {own[0]['tokens_per_s']:.0f} | |"]
    for row in rows:
        name = f"{row['peer']}, {row['mode']}, {row['weights']}, attention {row['attention']}"
        mark = " (best)" if row is best and len(rows) > 1 else ""
        lines.append(f"| {name}{mark} | {row['ms']:.1f} | {row['tokens_per_s']:.0f} | "
                     f"{own[0]['tokens_per_s'] / row['tokens_per_s']:.2f} |")
    if any(row["parameters"] != own[0]["parameters"] for row in rows) and args.device == "cuda":
        runner.failures.append("the models have different numbers of parameters")
    return [*lines, ""]


def peer_row(row, flops):
    """A torch_step.py row with the columns of fwa's; flops: of a token."""
    mfu = flops * row["tokens_per_s"] / 989e12 if any(name in row["device"] for name in ("H100", "H200")) else None
    return {**row, "config": f"{row['peer']}, {row['mode']}, {row['weights']}, attention {row['attention']}",
            "ms_median": row["ms"], "mfu": mfu, "mem_bytes": row["device_bytes"], "planned_bytes": row["gpu_bytes"]}


def rules_table(runner):
    args = runner.args
    lines = []
    for size in args.sizes.split(","):
        name, batch = size.split(":")
        folder = ROOT / "configs" / "lm" / ("" if name == "small" else name)
        files = (ROOT / "configs/lm/medium").glob("*.yaml")
        all_rules = sorted(path.stem for path in files if "." not in path.stem)  # the recipes of a rule cost the same
        names = args.rules.split(",") if args.rules else all_rules
        names.sort(key=lambda rule: rule != "transformer")
        rows, beside = [], None
        for rule in names:
            rows += [{**row, "config": rule} for row in runner.rows(f"fwa_{name}", [
                args.fwa, "bench", "step", (folder / f"{rule}.yaml").relative_to(ROOT), "run.backend=cuda",
                f"train.micro_batch={batch}", f"train.global_batch={batch}", "--steps", args.steps])]
            if rule != "transformer" or not rows:
                continue
            flops = 1e9 * rows[0]["gflops"] / rows[0]["tokens_per_s"]
            command = [sys.executable, HERE / "torch_step.py", "--device", "cuda", "--preset", name, "--batch", batch]
            for variant in args.torch or ["--compile --weights bf16 --attention cudnn"]:
                theirs = runner.rows(f"torch_{name}", [*command, *variant.split()])
                rows += [peer_row(row, flops) for row in theirs]
                beside = max([beside or 0, *(row["tokens_per_s"] for row in theirs)]) or None
        lines += [f"{name}, {batch} x 1024 tokens a step, bf16; memory: in use on the device, of it tensors, GB", "",
                  "| configuration | parameters | ms a step | tokens/s | MFU | memory | tensors | beside PyTorch's |",
                  "|---|---|---|---|---|---|---|---|"]
        for row in rows:
            lines.append(f"| {row['config']} | {row['parameters']:,} | {row['ms_median']:.1f} | "
                         f"{row['tokens_per_s'] / 1e3:.0f} k | {text(row['mfu'] and 100 * row['mfu'], 1)} % | "
                         f"{row['mem_bytes'] / 1e9:.1f} | {row['planned_bytes'] / 1e9:.1f} | "
                         f"{text(ratio(row['tokens_per_s'], beside), 2)} |")
        lines.append("")
    return lines


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fwa", required=True, help="the program")
    parser.add_argument("--out", required=True, help="folder for what was measured")
    parser.add_argument("--only", default="", help="ops, step, rules, ddp: several with commas; default: ops,step, on a "
                        "CPU step")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shapes", default="32x1024x6x128", help="of the operators: BxTxHxK, several with commas")
    parser.add_argument("--peers", default="", help="of ops: peers with commas instead of all")
    parser.add_argument("--sizes", default="small:64,medium:32", help="of rules")
    parser.add_argument("--rules", default="", help="of rules: configurations with commas instead of all")
    parser.add_argument("--steps", type=int, default=10, help="timed steps, of rules")
    parser.add_argument("--batch", type=int, default=64, help="sequences of a rank and step")
    parser.add_argument("--ranks", type=int, default=2, help="of ddp")
    parser.add_argument("--threads", type=int, default=2, help="on a CPU")
    parser.add_argument("--torch", action="append", help="options of torch_step.py to try instead; may be repeated")
    parser.add_argument("--fla", help="folder with fla-core, where it is not installed")
    parser.add_argument("--force", action="store_true", help="run what fla refuses on this Triton")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one command")
    parser.add_argument("--total", type=float, default=86400, help="seconds for all of them")
    args = parser.parse_args()
    args.fwa = str(pathlib.Path(args.fwa).resolve())
    return args


def main():
    args = parse_arguments()
    runner = Runner(args)
    parts = (args.only or ("step" if args.device == "cpu" else "ops,step")).split(",")
    tables = {"ops": lambda: ops_table(runner), "step": lambda: step_table(runner, 1),
              "rules": lambda: rules_table(runner), "ddp": lambda: step_table(runner, args.ranks)}
    lines = [line for part in parts for line in tables[part]()]
    lines += ["Not measured:", "", *(f"* {failure}" for failure in runner.failures)] if runner.failures else []
    report = "\n".join(lines) + "\n"
    (runner.out / "compare.md").write_text(report, encoding="utf-8")
    print(report, end="")
    return 1 if runner.failures else 0


if __name__ == "__main__":
    sys.exit(main())
