#!/usr/bin/env python3
"""Time of one full training step of a small LLaMA-style Transformer in PyTorch on the CPU, float32.

The model and batch are those of `fwa bench step`: pre-norm RMSNorm, RoPE (base 10000), causal attention, SwiGLU, no
biases, tied embeddings with the padded logits left out of the loss. A step is zero_grad, forward, backward, clipping
by the global norm and AdamW. Prints one line of JSON; `ms` is the fastest of the repeats, since other load on the
machine can only slow a step down, and `cpu_ms` the least processor time of a step, over all threads.

    python3 tests/peers/torch_step.py --threads 1
    python3 tests/peers/torch_step.py --threads 2 --compile
"""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


def rotary_tables(T, K):
    angle = torch.outer(torch.arange(T).float(), 10000.0 ** (-torch.arange(0, K, 2).float() / K))
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):  # x [B,H,T,K], halves paired
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


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
        self.used = args.vocab_used
        self.scale = 1024 / args.d_model
        self.embedding = nn.Embedding(args.vocab_size, args.d_model)
        self.blocks = nn.ModuleList(
            Block(args.d_model, args.heads, args.head_dim, args.ffn) for _ in range(args.layers)
        )
        self.norm = RMSNorm(args.d_model)
        cos, sin = rotary_tables(args.seq_len, args.head_dim)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.5 / math.sqrt(args.d_model))
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x) * self.scale, self.embedding.weight[: self.used])
        return F.cross_entropy(logits.view(-1, self.used), targets.view(-1))


def make_optimizer(model, fused):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=fused)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shape = {"layers": 4, "d_model": 256, "heads": 4, "head_dim": 64, "ffn": 684, "vocab_size": 50304}
    shape.update({"vocab_used": 50257, "seq_len": 256, "batch": 4})
    run = {"threads": 1, "warmup": 3, "repeats": 15}
    for name, default in {**shape, **run}.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--no-fused", action="store_true", help="AdamW parameter by parameter")
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = Transformer(args)
    optimizer = make_optimizer(model, fused=not args.no_fused)
    forward = torch.compile(model) if args.compile else model
    stream = torch.randint(0, args.vocab_used, (args.batch, args.seq_len + 1))
    tokens, targets = stream[:, :-1].contiguous(), stream[:, 1:].contiguous()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    losses = [step() for _ in range(args.warmup)]
    times, cpu_times = [], []
    for _ in range(args.repeats):
        start, cpu_start = time.perf_counter(), time.process_time()
        losses.append(step())
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
    if not (all(map(math.isfinite, losses)) and losses[-1] < losses[0]):
        raise SystemExit(f"the loss does not fall on one repeated batch: {losses[0]:.4f} to {losses[-1]:.4f}")
    best = min(times)
    print(json.dumps({
        "peer": "torch " + torch.__version__,
        "mode": "compile" if args.compile else "eager",
        "threads": args.threads,
        "parameters": sum(p.numel() for p in model.parameters()),
        "ms": round(1e3 * best, 2),
        "ms_median": round(1e3 * statistics.median(times), 2),
        "cpu_ms": round(1e3 * min(cpu_times), 2),
        "tokens_per_s": round(args.batch * args.seq_len / best, 1),
        "loss_first": round(losses[0], 4),
        "loss_last": round(losses[-1], 4),
    }))


if __name__ == "__main__":
    main()
