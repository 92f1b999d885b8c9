#!/usr/bin/env python3
"""Exported models beside this program's own logits: every rule and option in plain PyTorch (tools/fwa_torch.py), models
of softmax attention in the transformers library, and back again by fwa import.

    python3 tests/peers/export.py --fwa build/fwa

Needs torch, safetensors and transformers. Models are tiny, trained for a few steps so that no parameter stands at its
initial value, and compared in float64.
"""
import argparse
import filecmp
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import fwa_torch  # noqa: E402

BASE = """
run: {threads: 1, backend: cpu}
model: {layers: 2, d_model: 32, heads: 2, head_dim: 16, ffn: 48, vocab_size: 277, logit_scale: 8}
task: {name: addition, width_min: 1, width_max: 3}
train: {steps: 4, micro_batch: 8, global_batch: 8, precision: f64}
optimizer: {lr: 3e-3, width_scale: false}
schedule: {warmup: 1, min_lr: 1e-4}
eval: {every: 0}
"""
FALCON = ["falcon1", "falcon2", "falcon3", "falcon1a", "falcon2a", "falcon3a"]
PLAIN = ["linear_attention", "deltanet", "gated_deltanet", "retnet", "mamba2", "softmax"]
CASES = [[rule] for rule in FALCON + PLAIN]
CASES += [[rule, "shift=same_step", "qk_norm=l2", "step=direct", "ridge=uncoupled", "conv=0"] for rule in FALCON]
CASES += [[rule, "read=before_write", "v_norm=rms", "phi=silu", "ridge=none", "gate=false"] for rule in FALCON]
CASES += [[rule, "read=before_write"] for rule in ("deltanet", "gated_deltanet", "retnet", "mamba2")]
CASES += [[rule, "normalized_read=true", "phi=elu1"] for rule in ("falcon1a", "falcon3a", "linear_attention")]
CASES += [["linear_attention", "shift=next_latent", "qk_norm=l2"]]
CASES += [["falcon2", "beta_rank=3"], ["retnet", "decay=lightning"]]
CASES += [[rule, "beta=constant", "lambda=constant"] for rule in FALCON] + [["falcon3a", "beta=fixed", "lambda=fixed"], ["deltanet", "beta=constant"]]
CASES += [[rule, "rotary=false"] for rule in ("retnet", "softmax")]
CASES += [["falcon3", "window=1"], ["falcon3", "window=9", "eps=0", "eta_max=0.3"], ["falcon3a", "window=40"]]
CASES += [["mamba2", "state=8", "conv=2"], ["deltanet", "beta_range=2"], ["falcon1", "model.ffn=0"]]
CASES += [["falcon1", "lambda_init=0.999", "qk_norm=none", "step=direct", "ridge=uncoupled", "eps_gamma=0.3"]]


class Checker:
    def __init__(self, fwa):
        self.fwa, self.count, self.failed = os.path.abspath(fwa), 0, 0

    def run(self, *words):
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr}{done.stdout}")
        return done.stdout

    def train(self, name, words, base="base.yaml"):
        self.run(self.fwa, "train", base, f"run.name={name}", *words)

    def case(self, name, what):
        self.count += 1
        try:
            result = what()
        except Exception as error:  # told, and the others go on
            self.failed += 1
            result = f"FAILED: {error}"
        print(f"{name:90} {result}", flush=True)


def own(checker, name, words, base="base.yaml"):
    """Largest relative difference between the tool and the program, over forms."""
    checker.train(name, words, base)
    checker.run(checker.fwa, "export", f"runs/{name}", name, "--logits", "45")
    errors = fwa_torch.differences(name)
    if not max(errors.values()) < 1e-9:
        raise RuntimeError(str(errors))
    return f"largest {max(errors.values()):.2e}; gradients {gradients(name):.2e}"


def gradients(name):
    """Largest relative difference between the parameters' gradients of the two forms."""
    model = fwa_torch.load(name, torch.float64)
    tokens = load_file(f"{name}/logits.safetensors")["tokens"][None]
    grads = []
    for form in ("chunk", "recurrent"):
        model.zero_grad()
        logits = model(tokens, form=form, chunk=8)[0]
        (logits * torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits).sin()).sum().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    error = max(((a - b).norm() / b.norm().clamp(min=1e-9)).item() for a, b in zip(*grads))
    if not error < 1e-6:
        raise RuntimeError(f"the gradients of the two forms differ by {error:.2e}")
    return error


def round_trip(checker, name):
    """An import holds the same bits and the same configuration, so that its export is the same file."""
    checker.run(checker.fwa, "import", name, f"runs/{name}-again")
    checker.run(checker.fwa, "export", f"runs/{name}-again", f"{name}-again")
    if not filecmp.cmp(f"{name}/model.safetensors", f"{name}-again/model.safetensors", shallow=False):
        raise RuntimeError("the weights are others")
    return "the same file"


def llama(checker, words):
    """The transformers library's logits of an exported Transformer, and of one that was imported and exported again."""
    from transformers import LlamaForCausalLM

    checker.train("llama", ["model.mixer.main.rule=softmax", *words])
    results = []
    for name in ("llama", "llama-again"):
        checker.run(checker.fwa, "export", f"runs/{name}", name, "--to", "llama", "--logits", "60")
        model = LlamaForCausalLM.from_pretrained(name, dtype=torch.float64).eval()
        answer = load_file(f"{name}/logits.safetensors")
        with torch.no_grad():
            logits = model(answer["tokens"][None]).logits[0]
        error = ((logits - answer["logits"]).abs().max() / answer["logits"].square().mean().sqrt()).item()
        results.append(f"{error:.2e}")
        if not error < 1e-6:  # rotary tables are float32 there
            raise RuntimeError(f"the logits differ by {error:.2e}")
        if name == "llama":
            checker.run(checker.fwa, "import", name, "runs/llama-again")
    return "largest " + ", ".join(results)


def library(checker):
    """A model that the transformers library made and saved, imported."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=300, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                         num_attention_heads=3, head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=True,
                         max_position_embeddings=64)
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained("library")
    checker.run(checker.fwa, "import", "library", "runs/library")
    checker.run(checker.fwa, "export", "runs/library", "library-back", "--logits", "60", "train.precision=f64")
    answer = load_file("library-back/logits.safetensors")
    with torch.no_grad():
        logits = model.double()(answer["tokens"][None]).logits[0]
    error = ((logits - answer["logits"]).abs().max() / logits.square().mean().sqrt()).item()
    if not error < 1e-6:
        raise RuntimeError(f"the logits differ by {error:.2e}")
    return f"largest {error:.2e}"


def documents(checker):
    """Documents of a packed sequence: the vocabulary of GPT-2 is what has a document mark."""
    with open("documents.yaml", "w", encoding="utf-8") as file:
        file.write("""
base: base.yaml
model:
  layers: 3
  vocab_size: 50304
  mixers: [a, b, c]
  mixer: {a: {rule: falcon3}, b: {rule: softmax}, c: {rule: mamba2}}
task: {name: lm}
data: {train: tokens.bin, val: "", reset_documents: true}
train: {seq_len: 16, micro_batch: 1, global_batch: 1}
""")
    ids = torch.randint(0, 1000, (2000,), generator=torch.Generator().manual_seed(1))
    ids[::7] = 50256
    header = torch.zeros(256, dtype=torch.int32)
    header[:3] = torch.tensor([20240520, 1, len(ids)])
    with open("tokens.bin", "wb") as file:
        file.write(header.numpy().tobytes() + ids.to(torch.int16).numpy().tobytes())
    return own(checker, "documents", [], "documents.yaml")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fwa", default="build/fwa")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    args = parser.parse_args()
    checker = Checker(args.fwa)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("base.yaml", "w", encoding="utf-8") as file:
            file.write(BASE)
        for number, (rule, *options) in enumerate(CASES):
            name = " ".join((rule, *options))
            if args.only not in name:
                continue
            words = ["model.mixer.rule=" + rule]
            words += [w if w.startswith("model.") else "model.mixer." + w for w in options]
            checker.case(name, lambda: own(checker, f"case{number}", words))
            checker.case(f"{rule}, imported again", lambda: round_trip(checker, f"case{number}"))
        if args.only in "documents":
            checker.case("documents", lambda: documents(checker))
        if args.only in "llama":
            checker.case("llama", lambda: llama(checker, []))
        if args.only in "a model of the transformers library":
            checker.case("a model of the transformers library", lambda: library(checker))
        os.chdir("/")
    print(f"{checker.count} cases, {checker.failed} failed")
    sys.exit(checker.failed > 0)


if __name__ == "__main__":
    main()
