#!/usr/bin/env python3
"""`fwa eval --task mc` beside lm-evaluation-harness: the same questions, the same log-probabilities, the same accuracies.

    python3 tests/peers/harness.py runs/transformer data/eval/arc_easy.jsonl data/eval/lambada.jsonl --limit 100

Exports the run (LLaMA's layout where it is one, else for tools/fwa_torch.py), writes a task file for each set of questions
(docs/evaluation.md has the format), runs both programs on the first --limit questions of each, and compares every
question's scores and all results. Needs torch, transformers, lm_eval.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")


def task_file(path, first):
    """What lm-evaluation-harness has to know of a set, as YAML."""
    lines = [f"task: {path.stem}", "dataset_path: json", "dataset_kwargs:", "  data_files:",
             f"    test: {path.resolve()}", "test_split: test", "num_fewshot: 0"]
    if "target" in first:
        lines += ["output_type: loglikelihood", "doc_to_text: '{{context}}'", "doc_to_target: \"{{' ' + target}}\"",
                  "metric_list:", "  - metric: acc", "  - metric: perplexity"]
    else:
        lines += ["output_type: multiple_choice"]
        if "context_options" in first:
            lines += ["doc_to_text: '{{gold}}'", "doc_to_choice: '{{context_options}}'",
                      "doc_to_target: '{{continuation}}'", "metric_list:", "  - metric: acc"]
        else:
            lines += ["doc_to_text: '{{query}}'", "doc_to_choice: '{{choices}}'", "doc_to_target: '{{gold}}'",
                      "metric_list:", "  - metric: acc", "  - metric: acc_norm"]
    return "\n".join(lines) + "\n"


def run(*words):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def open_model(args, folder):
    """The exported model as lm_eval takes it."""
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        run(args.fwa, "export", args.run, folder, "--to", "llama", "--tokenizer", args.tokenizer)
        model = AutoModelForCausalLM.from_pretrained(folder)
        length = json.loads((Path(folder) / "config.json").read_text())["max_position_embeddings"]
        kind = "LlamaForCausalLM"
    except subprocess.CalledProcessError:
        sys.path.insert(0, str(ROOT / "tools"))
        import fwa_torch
        run(args.fwa, "export", args.run, folder, "--tokenizer", args.tokenizer)
        model = fwa_torch.Adapter(fwa_torch.load(folder))
        length, kind = args.max_length, "tools/fwa_torch.py"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", max_length=args.max_length or length,
                batch_size=args.batch), kind


def harness(args, folder, files):
    """Results and per-question scores of lm-evaluation-harness, by name of the file."""
    import lm_eval
    import torch
    from lm_eval.tasks import TaskManager

    lm, kind = open_model(args, Path(folder) / "exported")
    tasks = Path(folder) / "tasks"
    tasks.mkdir()
    for path in files:
        first = json.loads(path.open(encoding="utf-8").readline())
        (tasks / f"{path.stem}.yaml").write_text(task_file(path, first))
    with torch.no_grad():
        out = lm_eval.simple_evaluate(lm, tasks=[path.stem for path in files], limit=args.limit, bootstrap_iters=0,
                                      task_manager=TaskManager(include_path=str(tasks), include_defaults=False))
    scores = {}
    for name, samples in out["samples"].items():
        samples = sorted(samples, key=lambda sample: sample["doc_id"])
        scores[name] = [[float(response[0][0]) for response in sample["resps"]] for sample in samples]
    return out["results"], scores, kind


def ours(args, folder, path):
    """The same of `fwa eval`."""
    results, scores = Path(folder) / "ours.json", Path(folder) / "ours.jsonl"
    words = ["--cut"] if args.cut else []
    run(args.fwa, "eval", args.run, path, "--task", "mc", "--examples", args.limit, "--tokenizer", args.tokenizer, "--json",
        results, "--scores", scores, *words)
    rows = [json.loads(line) for line in scores.open()]
    return (json.loads(results.read_text())["results"][0],
            [row.get("logprobs", [row.get("logprob")]) for row in rows])


def compare(name, theirs, mine):
    """Prints one set; returns the largest difference of scores and whether the results are the same."""
    results, scores = theirs
    result, own = mine
    worst = max(abs(a - b) / max(1.0, abs(a)) for x, y in zip(scores, own, strict=True) for a, b in zip(x, y, strict=True))
    pairs = [("acc", "accuracy"), ("acc_norm", "accuracy_by_characters"), ("perplexity", "perplexity")]
    same = True
    for metric, key in pairs:
        value = results.get(f"{metric},none")
        if value is None or (key not in result):
            continue
        same = same and abs(value - result[key]) <= 1e-4 * max(1.0, abs(value))
        print(f"{name:18} {metric:12} {value:14.6f} {result[key]:14.6f}")
    print(f"{name:18} {len(own)} questions, largest difference of a score {worst:.1e} of it")
    return worst, same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run folder or checkpoint")
    parser.add_argument("files", nargs="+", type=Path, help="sets of questions, JSONL")
    parser.add_argument("--fwa", default=str(ROOT / "build" / "fwa"))
    parser.add_argument("--tokenizer", default="data/gpt2")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--max-length", type=int, help="longer contexts lose their beginning; needs --cut with attention")
    parser.add_argument("--cut", action="store_true", help="pass --cut to fwa eval")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="of scores, relative")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results, scores, kind = harness(args, folder, args.files)
        print(f"\n{'set':18} {'metric':12} {'lm_eval':>14} {'fwa':>14}   ({kind})")
        ends = [compare(path.stem, (results[path.stem], scores[path.stem]), ours(args, folder, path)) for path in args.files]
    if not all(same for _, same in ends) or not max(worst for worst, _ in ends) <= args.tolerance:
        raise SystemExit("the two differ")


if __name__ == "__main__":
    main()
