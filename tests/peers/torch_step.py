#!/usr/bin/env python3
"""Time of one full training step of a LLaMA-style Transformer in PyTorch, on a CPU in float32 or on GPUs in bf16.

The model and batch are those of `fwa bench step`: pre-norm RMSNorm, RoPE (base 10000), causal attention, SwiGLU, no
biases, tied embeddings. A step is forward, backward, clipping by the global norm and AdamW. Prints one line of JSON.

On a CPU the padded logits are left out of the loss, `ms` is the fastest of the repeats, since other load on the machine
can only slow a step down, and `cpu_ms` the least processor time of a step, over all threads.

    python3 tests/peers/torch_step.py --threads 1
    python3 tests/peers/torch_step.py --threads 2 --compile

On a GPU products and attention run in bf16, masters, moments and the norm's sums in fp32, AdamW is the fused one, and
logits keep their padding, as rows of 50257 elements would not be aligned; `ms` is the median between events on the stream.
--preset small is configs/lm/transformer.yaml, medium that of configs/lm/medium with the ffn size 2730 as fwa stores it, 2736,
for rows of 2730 elements would not be aligned either. --weights bf16: the model in bf16, with fp32 masters beside it; autocast:
fp32 weights, converted by every product. torchrun: data parallel, with --batch sequences a rank.

    python3 tests/peers/torch_step.py --device cuda --preset small --batch 64 --compile
    torchrun --nproc-per-node 2 tests/peers/torch_step.py --device cuda --preset small --batch 64 --compile
"""
import argparse
import contextlib
import json
import math
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

PRESETS = {
    "small": {"layers": 12, "d_model": 768, "heads": 6, "head_dim": 128, "ffn": 2048, "seq_len": 1024},
    "medium": {"layers": 24, "d_model": 1024, "heads": 8, "head_dim": 128, "ffn": 2736, "seq_len": 1024},
}


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)


def rotary_tables(T, K):
    angle = torch.outer(torch.arange(T).float(), 10000.0 ** (-torch.arange(0, K, 2).float() / K))
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):  # x [B,H,T,K], halves paired
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, D, H, K, ffn):
        super().__init__()
        self.H, self.K, self.ffn = H, K, ffn
        self.norm1, self.norm2 = RMSNorm(D), RMSNorm(D)
        self.qkv = nn.Linear(D, 3 * H * K, bias=False)
        self.out = nn.Linear(H * K, D, bias=False)
        self.gate_up = nn.Linear(D, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, D, bias=False)

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.H, self.K).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(B, T, self.H * self.K))
        gate, up = self.gate_up(self.norm2(x)).split(self.ffn, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Transformer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.used = args.vocab_size if args.device == "cuda" else args.vocab_used
        self.scale = 1024 / args.d_model
        self.stream = torch.bfloat16 if args.device == "cuda" else torch.float32
        self.embedding = nn.Embedding(args.vocab_size, args.d_model)
        self.blocks = nn.ModuleList(
            Block(args.d_model, args.heads, args.head_dim, args.ffn) for _ in range(args.layers)
        )
        self.norm = RMSNorm(args.d_model)
        cos, sin = rotary_tables(args.seq_len, args.head_dim)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.5 / math.sqrt(args.d_model))
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens).to(self.stream)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x) * self.scale, self.embedding.weight[: self.used])
        return F.cross_entropy(logits.view(-1, self.used), targets.view(-1))


class Optimizer:
    """AdamW and clipping on the parameters, or on fp32 masters of them that are copied back."""

    def __init__(self, model, fused, masters):
        self.parameters = list(model.parameters())
        self.masters = [p.detach().float().clone() for p in self.parameters] if masters else self.parameters
        matrices = [m for m in self.masters if m.dim() == 2]
        others = [m for m in self.masters if m.dim() != 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.adamw = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=fused)
        if masters:
            for master in self.masters:
                master.grad = torch.zeros_like(master)

    def clear(self):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self):
        if self.masters is not self.parameters:
            torch._foreach_copy_([m.grad for m in self.masters], [p.grad for p in self.parameters])
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0, foreach=self.masters[0].is_cuda)
        self.adamw.step()
        if self.masters is not self.parameters:
            torch._foreach_copy_(self.parameters, self.masters)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shape = {"layers": 4, "d_model": 256, "heads": 4, "head_dim": 64, "ffn": 684, "vocab_size": 50304}
    shape.update({"vocab_used": 50257, "seq_len": 256})
    run = {"batch": 4, "threads": 1, "warmup": 3, "repeats": 15}
    parser.add_argument("--preset", choices=sorted(PRESETS), help="the sizes of a configuration; single ones override")
    for name, default in {**shape, **run}.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, help=f"default {default}")
    parser.add_argument("--micro-batch", type=int, default=0, help="sequences at once; default: the whole batch")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--mode", default="default", help="of torch.compile, e.g. max-autotune-no-cudagraphs")
    parser.add_argument("--no-fused", action="store_true", help="AdamW parameter by parameter")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--weights", choices=("autocast", "bf16"), default="bf16", help="on a GPU")
    parser.add_argument("--attention", choices=("flash", "cudnn", "auto"), default="flash", help="on a GPU")
    args = parser.parse_args()
    for name, default in {**shape, **run, **PRESETS.get(args.preset, {})}.items():
        if getattr(args, name) is None:
            setattr(args, name, default)
    args.micro_batch = args.micro_batch or args.batch
    if args.batch % args.micro_batch:
        parser.error("--batch must be a multiple of --micro-batch")
    return args


def open_device(args):
    """Rank and number of ranks."""
    torch.set_num_threads(args.threads)
    if args.device == "cpu":
        return 0, 1
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    torch.set_float32_matmul_precision("high")
    if args.attention != "auto":
        torch.backends.cuda.enable_flash_sdp(args.attention == "flash")
        torch.backends.cuda.enable_cudnn_sdp(args.attention == "cudnn")
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_math_sdp(False)
    if ranks > 1:
        torch.distributed.init_process_group("nccl")
    return rank, ranks


def make_model(args, ranks):
    model = Transformer(args).to(args.device)
    if args.device == "cuda" and args.weights == "bf16":
        tables = model.cos, model.sin
        model = model.to(torch.bfloat16)
        model.cos, model.sin = tables  # rotations stay exact
    optimizer = Optimizer(model, not args.no_fused, args.device == "cuda" and args.weights == "bf16")
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return model, optimizer, torch.compile(model, mode=args.mode) if args.compile else model


def make_step(args, ranks, model, optimizer, forward):
    stream = torch.randint(0, args.vocab_used, (args.batch, args.seq_len + 1)).to(args.device)
    tokens = stream[:, :-1].contiguous().split(args.micro_batch)
    targets = stream[:, 1:].contiguous().split(args.micro_batch)
    casts = args.device == "cuda" and args.weights == "autocast"

    def step():
        optimizer.clear()
        total = 0.0
        for i, batch in enumerate(zip(tokens, targets)):
            quiet = ranks > 1 and i + 1 < len(tokens)
            with model.no_sync() if quiet else contextlib.nullcontext():
                with torch.autocast("cuda", torch.bfloat16) if casts else contextlib.nullcontext():
                    loss = forward(*batch) / len(tokens)
                loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return step


def time_cpu(args, step):
    losses = [step().item() for _ in range(args.warmup)]
    times, cpu_times = [], []
    for _ in range(args.repeats):
        start, cpu_start = time.perf_counter(), time.process_time()
        losses.append(step().item())
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
    return losses, times, {"ms": round(1e3 * min(times), 2), "cpu_ms": round(1e3 * min(cpu_times), 2)}


def time_cuda(args, step):
    losses = [step() for _ in range(args.warmup)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(args.repeats + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for i in range(args.repeats):
        losses.append(step())
        marks[i + 1].record()
    torch.cuda.synchronize()
    times = [1e-3 * a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    free, whole = torch.cuda.mem_get_info()
    memory = {"gpu_bytes": torch.cuda.max_memory_allocated(), "device_bytes": whole - free,
              "device": torch.cuda.get_device_name()}
    return [x.item() for x in losses], times, {"ms": round(1e3 * statistics.median(times), 2), **memory}


def main():
    args = parse_arguments()
    rank, ranks = open_device(args)
    torch.manual_seed(0)
    model, optimizer, forward = make_model(args, ranks)
    began = time.perf_counter()
    timing = time_cuda if args.device == "cuda" else time_cpu
    losses, times, result = timing(args, make_step(args, ranks, model, optimizer, forward))
    if not (all(map(math.isfinite, losses)) and losses[-1] < losses[0]):
        raise SystemExit(f"the loss does not fall on one repeated batch: {losses[0]:.4f} to {losses[-1]:.4f}")
    if rank == 0:
        print(json.dumps({
            "peer": "torch " + torch.__version__,
            "mode": "compile " + args.mode if args.compile else "eager",
            "weights": args.weights if args.device == "cuda" else "f32",
            "attention": args.attention if args.device == "cuda" else "auto",
            "ranks": ranks,
            "threads": args.threads,
            "parameters": sum(p.numel() for p in model.parameters()),
            **result,
            "ms_median": round(1e3 * statistics.median(times), 2),
            "tokens_per_s": round(1e3 * ranks * args.batch * args.seq_len / result["ms"], 1),
            "loss_first": round(losses[0], 4),
            "loss_last": round(losses[-1], 4),
            "seconds": round(time.perf_counter() - began, 1),
        }), flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
