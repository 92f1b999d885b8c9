#!/usr/bin/env python3
"""Time of the nearest public GPU operators on the shapes of `fwa bench op`: PyTorch's causal attention (sdpa: as it
chooses, cuDNN's on new GPUs; sdpa_flash: its own flash kernel), and the chunked delta rule, gated delta rule and simple
gated linear attention of flash-linear-attention (fla-core 0.5.2), the last also with RetNet's constant decays
(simple_gla_constant).

Prints one line of JSON a row: medians of the forward pass and of forward and backward together, in ms, bf16. Calls are
replayed from a CUDA graph where that can be recorded, so that a row does not time Python; "graph" says so. Each row is
checked against a plain recurrence (or softmax) in fp32 on short sequences, and has no times where it is wrong.

    python3 tests/peers/gpu_ops.py --ops sdpa --shapes 32x1024x6x128
    python3 tests/peers/gpu_ops.py --fla FOLDER --ops delta_rule,gated_delta_rule,simple_gla

--fla FOLDER: where fla-core is unpacked (`python3 -m zipfile -e fla_core-0.5.2-py3-none-any.whl FOLDER`); left out: it is
installed. Triton 3.4 to 3.7.0 compiles fla's gated backward kernel wrongly on Hopper, and fla refuses to run it there;
--force runs it all the same, for its time: the row then says "backward_right": false unless its gradients pass the check.
Every row tunes its Triton kernels anew, on its own shape. Compiling all that is tried takes minutes; with --share I/N, for
each I below N, N processes side by side only compile, a part each, into TRITON_CACHE_DIR, for a run that follows.
"""
import argparse
import functools
import gc
import json
import os
import statistics
import sys
import time
import zlib

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WARM_UP, REPEATS = 3, 20


def inputs_for(shape, gated, has_beta, seed=0):
    """q, k [B,T,H,K], v, do [B,T,H,V]; beta, log decay [B,T,H], as the rules of fwa get them."""
    B, T, H, K = shape
    generator = torch.Generator("cuda").manual_seed(seed)

    def normal(*size):
        return torch.randn(*size, generator=generator, device="cuda")

    q, k = (F.normalize(normal(B, T, H, K), dim=-1).bfloat16() for _ in range(2))
    v, do = (normal(B, T, H, K).bfloat16() for _ in range(2))
    tensors = {"q": q, "k": k, "v": v}
    if has_beta:
        tensors["beta"] = torch.rand(B, T, H, generator=generator, device="cuda").mul(0.9).add(0.1).bfloat16()
    if gated:
        tensors["g"] = -0.1 * torch.rand(B, T, H, generator=generator, device="cuda")
    for t in tensors.values():
        t.requires_grad_()
    return tensors, do


def recurrence(q, k, v, beta=None, g=None, delta=False):
    """S = e^g S + beta k (v - delta S^T k)^T, o = S^T q in fp32."""
    q, k, v = q.float(), k.float(), v.float()
    B, T, H, K = q.shape
    S = torch.zeros(B, H, K, v.shape[-1], device=q.device)
    out = []
    for t in range(T):
        if g is not None:
            S = S * g[:, t].float().exp()[..., None, None]
        write = v[:, t] - torch.einsum("bhkv,bhk->bhv", S, k[:, t]) if delta else v[:, t]
        if beta is not None:
            write = write * beta[:, t].float()[..., None]
        S = S + torch.einsum("bhk,bhv->bhkv", k[:, t], write)
        out.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]))
    return torch.stack(out, 1)


@functools.cache
def constant_decay(heads):
    """log(1 - 2^(-5-h)) of head h."""
    return torch.log1p(-torch.exp2(-5.0 - torch.arange(heads, device="cuda")))


def softmax(q, k, v):
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return (scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v).transpose(1, 2)


def sdpa(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def sdpa_flash(q, k, v):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return sdpa(q, k, v)


def load_ops(args):
    """name -> (function, truth, has a decay, has a beta)"""
    ops = {"sdpa": (sdpa, softmax, False, False), "sdpa_flash": (sdpa_flash, softmax, False, False)}
    if all(name in ops for name in args.ops):
        return ops, "torch " + torch.__version__
    if args.fla:
        sys.path.insert(0, args.fla)
    os.environ["FLA_CACHE_RESULTS"] = "0"  # what was tuned for another shape, or beside other work, is not taken
    import fla
    from fla.ops.common import chunk_o
    from fla.ops.delta_rule import chunk_delta_rule
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.simple_gla import chunk_simple_gla

    if args.force:
        chunk_o.IS_NVIDIA_HOPPER = False  # read by its refusal only
    ops["delta_rule"] = (
        lambda q, k, v, beta: chunk_delta_rule(q, k, v, beta, scale=1.0)[0],
        lambda **x: recurrence(**x, delta=True), False, True)
    ops["gated_delta_rule"] = (
        lambda q, k, v, beta, g: chunk_gated_delta_rule(q, k, v, g, beta, scale=1.0)[0],
        lambda **x: recurrence(**x, delta=True), True, True)
    ops["simple_gla"] = (lambda q, k, v, g: chunk_simple_gla(q, k, v, g, scale=1.0)[0], recurrence, True, False)
    ops["simple_gla_constant"] = (
        lambda q, k, v: chunk_simple_gla(q, k, v, g_gamma=constant_decay(q.shape[2]), scale=1.0)[0],
        lambda q, k, v: recurrence(q, k, v, g=constant_decay(q.shape[2]).expand(q.shape[:3])), False, False)
    import triton

    return ops, f"fla {fla.__version__}, torch {torch.__version__}, triton {triton.__version__}"


def error(a, b):
    return ((a.float() - b.float()).square().mean().sqrt() / b.float().square().mean().sqrt()).item()


def check(function, truth, gated, has_beta, shape):
    """Errors of the output and, worst, of the gradients, on short sequences of these heads; None for gradients refused."""
    tensors, do = inputs_for((shape[0], 192, *shape[2:]), gated, has_beta, seed=1)
    o, expected = function(**tensors), truth(**tensors)
    leaves = list(tensors.values())
    forward = error(o, expected)
    try:
        got = torch.autograd.grad(o, leaves, do)
    except RuntimeError:
        return forward, None
    wanted = torch.autograd.grad(expected, leaves, do.float())
    return forward, max(error(a, b) for a, b in zip(got, wanted))


def tuners():
    """Every kernel of Triton that chooses among settings by measuring them."""
    from triton.runtime.autotuner import Autotuner

    return [thing for thing in gc.get_objects() if issubclass(type(thing), Autotuner)]


def tune_anew():
    """The next call of each kernel measures its settings, for 10 ms each."""
    from triton.testing import do_bench

    for tuner in tuners():
        tuner.cache.clear()
        tuner.__dict__["do_bench"] = lambda call, quantiles: do_bench(call, warmup=2, rep=10, quantiles=quantiles)


def compile_share(part, parts):
    """From now on kernels are not run: each compiles every parts-th of its settings, beginning with part."""
    from triton.runtime.autotuner import Autotuner

    def once(call, quantiles):
        call()
        return [0.0] * len(quantiles)

    def run(self, *args, **kwargs):
        self.__dict__["do_bench"] = once
        self.nargs = dict(zip(self.arg_names, args))
        sizes = [value for value in [*args, *kwargs.values()] if isinstance(value, (bool, int))]
        first = zlib.crc32(repr((self.base_fn.__name__, sizes)).encode())  # short lists do not meet in one process
        for config in self.configs[(part + first) % parts::parts]:
            began = time.monotonic()
            self._bench(*args, config=config, **{**kwargs, "warmup": True})
            if time.monotonic() - began > 5:
                print(f"{time.monotonic() - began:.1f} s: {self.base_fn.__name__} {config}", file=sys.stderr, flush=True)

    Autotuner.run = run


def compile_row(name, op, shape):
    """What measure() would run, under compile_share()."""
    function, _, gated, has_beta = op
    began = time.monotonic()
    tensors, do = inputs_for(shape, gated, has_beta)
    torch.autograd.grad(function(**tensors), list(tensors.values()), do)
    torch.cuda.synchronize()
    return {"op": name, **dict(zip("BTHK", shape)), "compile_seconds": time.monotonic() - began}


def record(run):
    """`run` as a replay of a CUDA graph, or as it is."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay, True
    except RuntimeError:
        torch.cuda.synchronize()
        return run, False


def median_ms(run):
    replay, graph = record(run)
    for _ in range(WARM_UP):
        replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        replay()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:])), graph


def measure(name, op, shape, peer):
    function, truth, gated, has_beta = op
    row = {"peer": peer, "op": name, **dict(zip("BTHK", shape)), "V": shape[3], "dtype": "bf16"}
    if not name.startswith("sdpa"):
        tune_anew()
    tensors, do = inputs_for(shape, gated, has_beta)
    leaves = list(tensors.values())
    times = {}
    times["forward_ms"], times["graph"] = median_ms(lambda: function(**tensors))
    try:
        both, times["graph_both"] = median_ms(lambda: torch.autograd.grad(function(**tensors), leaves, do))
        times["both_ms"] = both
    except RuntimeError as refusal:
        times["refused"] = str(refusal).splitlines()[0]
    forward_error, backward_error = check(function, truth, gated, has_beta, shape)
    row["forward_error"] = round(forward_error, 5)
    if not forward_error < 0.02:
        return {**row, "refused": "the output is wrong"}
    row.update(times)
    if backward_error is not None:
        row.update(backward_error=round(backward_error, 5), backward_right=backward_error < 0.03)
    return row


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="sdpa,sdpa_flash,delta_rule,gated_delta_rule,simple_gla,simple_gla_constant")
    parser.add_argument("--shapes", default="32x1024x6x128", help="BxTxHxK, several with commas; V is K")
    parser.add_argument("--fla", help="folder with fla-core")
    parser.add_argument("--force", action="store_true", help="run what fla refuses on this Triton")
    parser.add_argument("--share", help="I/N: only compile the I-th of N parts of what would be tried")
    args = parser.parse_args()
    args.ops = args.ops.split(",")
    args.shapes = [tuple(map(int, text.split("x"))) for text in args.shapes.split(",")]
    return args


def main():
    args = parse_arguments()
    ops, peer = load_ops(args)
    if args.share:
        compile_share(*map(int, args.share.split("/")))
    for shape in args.shapes:
        for name in args.ops:
            try:
                row = compile_row(name, ops[name], shape) if args.share else measure(name, ops[name], shape, peer)
            except Exception as failure:  # one operator's failure leaves the others their rows
                reason = f"{type(failure).__name__}: {failure}".splitlines()[0]
                row = {"peer": peer, "op": name, **dict(zip("BTHK", shape)), "refused": reason}
            print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


if __name__ == "__main__":
    main()
