#!/usr/bin/env python3
"""Models that `fwa export` wrote, in plain PyTorch: every rule, step by step and chunk by chunk (docs/export.md).

    model = fwa_torch.load("exported")                       # a torch module in eval mode
    logits, state = model(tokens)                            # tokens [B,T] -> [B,T,vocab]
    logits, state = model(more, state)                       # goes on where it stopped; T = 1 decodes
    logits, state = model(tokens, form="recurrent")          # the definition, token by token

    python3 tools/fwa_torch.py check exported                # beside the logits of `fwa export --logits N`
    python3 tools/fwa_torch.py eval exported --tasks lambada_openai --include FOLDER     # lm-evaluation-harness

Needs torch and safetensors; `eval` needs lm_eval[hf] too. Gradients flow through both forms. Shapes: B sequences, T
tokens, H heads, keys of K, values of V, c steps of a chunk, W pairs of a window. Equations: docs/math/README.md.
"""
import argparse
import json
import math
import os
import types

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

FALCON = {"falcon1", "falcon2", "falcon3", "falcon1a", "falcon2a", "falcon3a"}
RESIDUAL = {"falcon1", "falcon2", "falcon3", "deltanet", "gated_deltanet"}  # write v - S^T x, the others v
COLUMNS = {"falcon2", "falcon2a"}  # a step for every value channel
ROTARY = {"softmax", "retnet"}
CONVOLVED = FALCON | {"linear_attention", "deltanet", "gated_deltanet", "mamba2"}  # and SiLU
BETA = FALCON | {"deltanet", "gated_deltanet"}
DECAYING = {"gated_deltanet", "mamba2"}  # by what the token says
KNOWN = ROTARY | CONVOLVED


class Weight(nn.Module):
    """A matrix [out, in] or vector with a bias where there is one."""

    def __init__(self, *shape, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*shape))
        self.bias = nn.Parameter(torch.empty(shape[0])) if bias else None

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


def rms(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def normalize(x, kind, eps):
    if kind == "l2":
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-12)
    return rms(x, eps) if kind == "rms" else x


def feature_map(x, kind):
    maps = {"identity": lambda u: u, "elu1": lambda u: F.elu(u) + 1, "relu": F.relu, "silu": F.silu}
    return maps[kind](x)


def rotate(x, position, base):  # x [B,H,T,K]: pairs (i, i + K/2)
    T, K = x.shape[-2:]
    inverse = base ** (-torch.arange(0, K, 2, device=x.device, dtype=torch.float64) / K)
    angle = torch.outer(torch.arange(position, position + T, device=x.device, dtype=torch.float64), inverse)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def steps(S, q, X, V, w, decay, rule, before_write):
    """The definition. S [B,H,K,V], q [B,H,T,K], X [B,H,T,W,K], V [B,H,T,W,V], w [B,H,T,1] or [B,H,T,V], and decay, the
    logarithm of gamma, likewise."""
    out = []
    for t in range(q.shape[2]):
        x, y = X[:, :, t], V[:, :, t]
        decayed = S * decay[:, :, t, None].exp()
        if rule in RESIDUAL:
            y = y - x @ (decayed if rule == "gated_deltanet" else S)
        after = decayed + x.mT @ (w[:, :, t, None] * y)
        out.append(q[:, :, t, None] @ (S if before_write else after))
        S = after
    return torch.cat(out, dim=2), S


def chunk(S, q, X, V, w, decay, rule, before_write):
    """The same for all steps of a chunk at once, w and decay [B,H,c]. Every exponent is a difference <= 0."""
    c, W = X.shape[2:4]
    u = decay.cumsum(-1)
    earlier = F.pad(u[..., :-1], (1, 0))  # u of the step before
    owner = torch.arange(c, device=q.device).repeat_interleave(W)  # step of every pair
    X, R = X.flatten(2, 3), V.flatten(2, 3)

    def weights(of, step, itself):  # what is left at `step` of what each pair wrote
        gap = of[..., :, None] - u[..., None, owner]
        reached = step[:, None] >= owner if itself else step[:, None] > owner
        return torch.where(reached, gap, -math.inf).exp() * w[..., None, owner]

    if rule in RESIDUAL:
        seen = (u if rule == "gated_deltanet" else earlier)[..., owner]
        system = (X @ X.mT) * weights(seen, owner, False)
        known = R - seen.exp()[..., None] * (X @ S)
        R = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
    at = earlier if before_write else u
    read = (q @ X.mT) * weights(at, torch.arange(c, device=q.device), not before_write)
    out = at.exp()[..., None] * (q @ S) + read @ R
    end = torch.tensor([c - 1], device=q.device)
    S = u[..., -1:, None].exp() * S + X.mT @ (weights(u[..., -1:], end, True).mT * R)
    return out, S


def chunks(S, q, X, V, w, decay, rule, before_write, size):
    columns, shape = w.shape[-1] > 1, S.shape
    if columns:  # a head a value channel
        S = S.mT.flatten(1, 2)[..., None]
        q, X = (t.repeat_interleave(shape[3], 1) for t in (q, X))
        V, w, decay = V.movedim(-1, 2).flatten(1, 2)[..., None], w.mT.flatten(1, 2), decay.mT.flatten(1, 2)
    else:
        w, decay = w.squeeze(-1), decay.squeeze(-1)
    out = []
    for t in range(0, q.shape[2], size):
        part = (x[:, :, t : t + size] for x in (q, X, V, w, decay))
        o, S = chunk(S, *part, rule, before_write)
        out.append(o)
    out = torch.cat(out, dim=2)
    if columns:
        out, S = (x.squeeze(-1).unflatten(1, (shape[1], shape[3])) for x in (out, S))
        out, S = out.movedim(2, -1), S.mT
    return out, S


class Mixer(nn.Module):
    def __init__(self, config, spec, layer):
        super().__init__()
        self.spec, self.rule, self.layer, self.config = spec, spec["rule"], layer, config
        D, H, V = config["d_model"], config["heads"], config["head_dim"]
        self.H, self.V = H, V
        self.Hq, self.K = (1, spec["state"]) if self.rule == "mamba2" else (H, V)
        for name, rows in (("q", self.Hq * self.K), ("k", self.Hq * self.K), ("v", H * V)):
            self.add_module(name, Weight(rows, D))
            if self.rule in CONVOLVED and spec["conv"]:
                self.add_module("conv_" + name, Weight(rows, spec["conv"]))
        if spec["gate"]:
            self.gate = Weight(H * V, D)
        rank = spec["beta_rank"] if self.rule in COLUMNS else 0
        if self.rule in BETA and rank:
            self.beta_down, self.beta_up = Weight(rank, D), Weight(H * V, rank)
            self.beta = nn.Module()
            self.beta.bias = nn.Parameter(torch.empty(H * V))
        elif self.rule in BETA and self.constant("beta"):
            self.beta = nn.Module()
            self.beta.bias = nn.Parameter(torch.empty(H * V if self.rule in COLUMNS else H))
        elif self.rule in BETA:
            self.beta = Weight(H * V if self.rule in COLUMNS else H, D, bias=True)
        if self.rule in FALCON and spec["ridge"] != "none" and self.constant("lambda"):
            self.add_module("lambda", nn.Module())
            getattr(self, "lambda").bias = nn.Parameter(torch.empty(H))
        elif self.rule in FALCON and spec["ridge"] != "none":
            self.add_module("lambda", Weight(H, D, bias=True))
        if self.rule in DECAYING:
            self.dt = Weight(H, D)
            self.A_log, self.dt_bias = nn.Parameter(torch.empty(H)), nn.Parameter(torch.empty(H))
        if self.rule == "mamba2":
            self.D = nn.Parameter(torch.empty(H))
        if self.rule != "softmax":
            self.norm = Weight(H * V if self.rule == "mamba2" else V)
        self.out = Weight(D, H * V)

    def constant(self, name):
        """Whether beta or lambda is the same for every token; exports of older programs do not say."""
        return self.spec.get(name, "contextual") != "contextual"

    def scalar(self, n, name):  # [B,T,.] before the sigmoid
        part = getattr(self, name)
        return part.bias.expand(*n.shape[:2], -1) if self.constant(name) else part(n)

    def features(self, n, name, heads, norm, phi, state):
        u = getattr(self, name)(n)
        if self.rule in CONVOLVED:
            if hasattr(self, "conv_" + name):
                taps = getattr(self, "conv_" + name).weight
                halo = state.get(name, u.new_zeros(u.shape[0], taps.shape[1] - 1, u.shape[2]))
                u = torch.cat((halo, u), dim=1)
                state[name] = u[:, u.shape[1] - halo.shape[1] :]
                u = F.conv1d(u.mT, taps[:, None], groups=taps.shape[0]).mT
            u = F.silu(u)
        u = u.unflatten(-1, (heads, -1)).transpose(1, 2)
        return feature_map(normalize(u, norm, self.config["norm_eps"]), phi)

    def beta_of(self, n):  # [B,H,T,1] or [B,H,T,V]
        raw = self.beta_up(self.beta_down(n)) + self.beta.bias if hasattr(self, "beta_up") else self.scalar(n, "beta")
        return self.spec["beta_range"] * raw.unflatten(-1, (self.H, -1)).transpose(1, 2).sigmoid()

    def falcon_rate(self, n, X, pairs):
        """eta / B_t and log gamma; X [B,H,T,W,K] with zeros for pairs that do not exist, pairs [T]: how many do."""
        spec, count = self.spec, pairs.clamp(min=1).to(n.dtype)[:, None]
        if self.rule == "falcon3":
            energy = torch.linalg.eigvalsh(X @ X.mT)[..., -1:] / count
        else:
            energy = X.square().sum((-1, -2)).unsqueeze(-1) / count
        ridge = torch.zeros_like(energy)
        if spec["ridge"] != "none":
            raw = self.scalar(n, "lambda").transpose(1, 2).unsqueeze(-1)
            ridge = self.config["lambda_scale"] * raw.sigmoid() * (energy if spec["ridge"] == "coupled" else 1)
        eta = self.beta_of(n)
        if spec["step"] == "normalized":
            below = energy + ridge + spec["eps"]
            eta = torch.where(below > 0, eta / below.clamp(min=torch.finfo(n.dtype).tiny), 0)
        if spec["eta_max"] > 0:
            eta = eta.clamp(max=spec["eta_max"])
        return eta / count, torch.log1p(-(eta * ridge).clamp(max=1 - spec["eps_gamma"]))

    def plain_rate(self, n, log_decay):
        ones = n.new_ones(n.shape[0], self.H, n.shape[1], 1)
        w = self.beta_of(n) if self.rule in BETA else ones
        return w, torch.zeros_like(ones) if log_decay is None else log_decay

    def log_decay(self, n):  # [B,H,T,1], and the width of the step
        B, T, H = n.shape[0], n.shape[1], self.H
        if self.rule in DECAYING:
            dt = F.softplus(self.dt(n) + self.dt_bias).transpose(1, 2).unsqueeze(-1)
            return -self.A_log.exp()[:, None, None] * dt, dt
        if self.rule != "retnet":
            return None, None
        h = torch.arange(H, device=n.device, dtype=torch.float64)
        per_head = torch.log1p(-(2.0 ** (-5 - h)))
        if self.spec["decay"] == "lightning":
            per_head = -(8 * h / H) * (1 - self.layer / self.config["layers"])
        return per_head.to(n.dtype)[None, :, None, None].expand(B, H, T, 1), None

    def windows(self, x, v, first, state):
        """Pairs of every step: X [B,H,T,W,K], V [B,H,T,W,V], and how many of them exist [T]."""
        W, n = self.spec["window"], state["tail_x"].shape[2] if "tail_x" in state else 0
        x, v = (torch.cat((state[k], y), 2) if n else y for k, y in (("tail_x", x), ("tail_v", v)))
        there = torch.ones(x.shape[2], dtype=torch.bool, device=x.device)
        there[n] = not first
        if W > 1:
            start = x.shape[2] - min(W - 1, x.shape[2] - first)
            state["tail_x"], state["tail_v"] = x[:, :, start:], v[:, :, start:]
        padding = W - 1 - n
        there = F.pad(there, (padding, 0)).unfold(0, W, 1)
        x, v = (F.pad(y, (0, 0, padding, 0)).unfold(2, W, 1).mT for y in (x, v))
        return x * there[:, :, None], v, there.sum(-1)

    def memory(self, n, q, k, v, state, form, size, log_decay):
        """What the rule reads for every token [B,H,T,V]."""
        x, first = k, False
        if self.spec["shift"] == "next_latent":
            first = "last" not in state
            x = torch.cat((state.get("last", torch.zeros_like(k[:, :, :1])), k[:, :, :-1]), 2)
            state["last"] = k[:, :, -1:]
        if self.spec["normalized_read"]:  # a column of ones carries the denominator
            v = torch.cat((v, torch.ones_like(v[..., :1])), -1)
        X, V, pairs = self.windows(x, v, first, state)
        w, decay = self.falcon_rate(n, X, pairs) if self.rule in FALCON else self.plain_rate(n, log_decay)
        exists = (pairs > 0)[:, None]
        w, decay = torch.where(exists, w, 0), torch.where(exists, decay, 0)
        S = state.get("S", v.new_zeros(v.shape[0], self.H, self.K, v.shape[-1]))
        before = self.spec["read"] == "before_write"
        if form == "recurrent":
            o, state["S"] = steps(S, q, X, V, w, decay, self.rule, before)
        else:
            o, state["S"] = chunks(S, q, X, V, w, decay, self.rule, before, size)
        return o[..., :-1] / (o[..., -1:] + self.spec["eps_attn"]) if self.spec["normalized_read"] else o

    def attention(self, q, k, v, state):
        k, v = (torch.cat((state[name], y), 2) if name in state else y for name, y in (("keys", k), ("values", v)))
        state["keys"], state["values"] = k, v
        T, n = q.shape[2], k.shape[2]
        mask = torch.ones(T, n, dtype=torch.bool, device=q.device).tril(n - T)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def forward(self, n, state, position, form, size):
        spec, base, eps = self.spec, self.config["rotary_base"], self.config["norm_eps"]
        q, k = (self.features(n, name, self.Hq, spec["qk_norm"], spec["phi"], state) for name in "qk")
        x = v = self.features(n, "v", self.H, spec["v_norm"], "identity", state)
        if spec.get("rotary", self.rule in ROTARY):  # absent where an earlier version wrote it
            q, k = rotate(q, position, base), rotate(k, position, base)
        if self.rule == "softmax":
            return self.out(self.attention(q, k, v, state).transpose(1, 2).flatten(2))
        log_decay, dt = self.log_decay(n)
        if self.rule == "mamba2":
            q, k, v = q.expand(-1, self.H, -1, -1), k.expand(-1, self.H, -1, -1), dt * x
        o = self.memory(n, q, k, v, state, form, size, log_decay)
        if self.rule == "retnet":
            o = o * self.K**-0.5
        if self.rule == "mamba2":
            o = o + self.D[:, None, None] * x
        gate = F.silu(self.gate(n)) if spec["gate"] else 1
        if self.rule == "mamba2":
            return self.out(rms(o.transpose(1, 2).flatten(2) * gate, eps) * self.norm.weight)
        return self.out((rms(o, eps) * self.norm.weight).transpose(1, 2).flatten(2) * gate)


class Block(nn.Module):
    def __init__(self, config, spec, layer):
        super().__init__()
        D, ffn = config["d_model"], config["ffn"]
        self.eps = config["norm_eps"]
        self.norm1, self.mixer = Weight(D), Mixer(config, spec, layer)
        if ffn:
            self.norm2, self.mlp = Weight(D), nn.Module()
            self.mlp.gate, self.mlp.up, self.mlp.down = Weight(ffn, D), Weight(ffn, D), Weight(D, ffn)

    def forward(self, x, state, position, form, size):
        x = x + self.mixer(rms(x, self.eps) * self.norm1.weight, state, position, form, size)
        if not hasattr(self, "mlp"):
            return x
        n = rms(x, self.eps) * self.norm2.weight
        return x + self.mlp.down(F.silu(self.mlp.gate(n)) * self.mlp.up(n))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        specs = [config["mixers"][name] for name in config["layer_mixers"]]
        self.embedding = Weight(config["vocab_size"], config["d_model"])
        self.blocks = nn.ModuleList(Block(config, spec, layer) for layer, spec in enumerate(specs))
        self.norm = Weight(config["d_model"])

    def forward(self, tokens, state=None, form="chunk", chunk=64):
        """Logits [B,T,vocab] and the state behind the last token, to be given to the next call."""
        if self.config["reset_documents"]:
            return self.documents(tokens, state, form, chunk)
        return self.segment(tokens, state, form, chunk)

    def segment(self, tokens, state, form, size):
        position = state["position"] if state else 0
        layers = [dict(s) for s in state["layers"]] if state else [{} for _ in self.blocks]
        x = F.embedding(tokens, self.embedding.weight)
        for block, memory in zip(self.blocks, layers):
            x = block(x, memory, position, form, size)
        x = rms(x, self.config["norm_eps"]) * self.norm.weight * self.config["logit_scale"]
        logits = x @ self.embedding.weight[: self.config["vocab"]].T
        return logits, {"position": position + tokens.shape[1], "layers": layers}

    def documents(self, tokens, state, form, size):
        """Nothing but positions is carried into a document: sequences are cut in front of their first tokens."""
        if tokens.shape[0] != 1:
            rows = [self.documents(row[None], None, form, size)[0] for row in tokens]
            return torch.cat(rows), None  # documents of several sequences end in different places
        starts = (tokens[0] == self.config["document"]).nonzero().flatten().tolist()
        logits, at = [], 0
        for end in [s for s in starts if s > 0] + [tokens.shape[1]]:
            if at in starts:
                state = {"position": state["position"] if state else 0, "layers": [{} for _ in self.blocks]}
            part, state = self.segment(tokens[:, at:end], state, form, size)
            logits.append(part)
            at = end
        return torch.cat(logits, 1), state


def load(folder, dtype=torch.float32, device="cpu"):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    if config.get("format") != "fwa-model" or config.get("version") != 1:
        raise SystemExit(f"{folder}: config.json is not that of fwa export --to safetensors, version 1")
    for name, spec in config["mixers"].items():
        if spec["rule"] not in KNOWN:
            raise SystemExit(f"{folder}: mixer {name} has the rule {spec['rule']}, expected one of {sorted(KNOWN)}")
    with torch.device("meta"):
        model = Model(config)
    weights = load_file(os.path.join(folder, "model.safetensors"), device=device)
    model.load_state_dict({name: w.to(dtype) for name, w in weights.items()}, strict=True, assign=True)
    return model.eval()


def differences(folder):
    """Largest difference from the logits beside the model, relative to their RMS: in each form, and after a split."""
    model = load(folder, torch.float64)
    answer = load_file(os.path.join(folder, "logits.safetensors"))
    tokens, wanted = answer["tokens"][None], answer["logits"].double()
    cut = tokens.shape[1] // 2 + 1
    with torch.no_grad():
        results = {f"chunk of {size}": model(tokens, chunk=size)[0] for size in (1, 7, 64)}
        results["recurrent"] = model(tokens, form="recurrent")[0]
        head, state = model(tokens[:, :cut])
        results["in two parts"] = torch.cat((head, model(tokens[:, cut:], state)[0]), 1)
    scale = wanted.square().mean().sqrt()
    errors = {name: ((logits[0] - wanted).abs().max() / scale).item() for name, logits in results.items()}
    return {name: error if math.isfinite(error) else math.inf for name, error in errors.items()}


def check(args):
    errors = differences(args.model)
    for name, error in errors.items():
        print(f"{name:14} {error:.2e}")
    if not max(errors.values()) <= args.tolerance:
        raise SystemExit(f"the logits differ by {max(errors.values()):.2e}, more than {args.tolerance:.0e}")


class Adapter(nn.Module):
    """What lm-evaluation-harness expects of a model of the transformers library."""

    def __init__(self, model):
        super().__init__()
        self.model, self.config = model, types.SimpleNamespace(model_type="fwa", vocab_size=model.config["vocab"])
        self.device = next(model.parameters()).device

    def tie_weights(self):
        pass

    def forward(self, input_ids, **_):
        return types.SimpleNamespace(logits=self.model(input_ids)[0])

    def generate(self, input_ids, attention_mask, max_length, stopping_criteria, **_):
        """Greedy. Every sequence has a state of its own, as a recurrent model would read padding on its left."""
        answers = [self.model(ids[mask.bool()][None]) for ids, mask in zip(input_ids, attention_mask)]
        while input_ids.shape[1] < max_length:
            tokens = torch.cat([logits[:, -1:].argmax(-1) for logits, _ in answers])
            input_ids = torch.cat((input_ids, tokens), 1)
            if bool(torch.as_tensor(stopping_criteria(input_ids, None)).all()):
                break
            answers = [self.model(token[None], state) for token, (_, state) in zip(tokens, answers)]
        return input_ids


def evaluate(args):
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from transformers import AutoTokenizer

    model = Adapter(load(args.model, getattr(torch, args.dtype), args.device))
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer or args.model)
    length = args.max_length or model.model.config["config"]["train"]["seq_len"] or 1024
    length = 1024 if length == "auto" else length
    lm = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", max_length=length, batch_size=args.batch)
    with torch.no_grad():
        results = lm_eval.simple_evaluate(lm, tasks=args.tasks.split(","), num_fewshot=args.shots, limit=args.limit,
                                          task_manager=TaskManager(include_path=args.include), bootstrap_iters=0)
    print(lm_eval.utils.make_table(results))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(results["results"], file, indent=1, default=str)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("check", help="compare with logits.safetensors")
    one.add_argument("model", help="folder of fwa export")
    one.add_argument("--tolerance", type=float, default=1e-4)
    one.set_defaults(run=check)
    one = commands.add_parser("eval", help="run tasks of lm-evaluation-harness")
    one.add_argument("model", help="folder of fwa export")
    one.add_argument("--tasks", required=True, help="names with commas between")
    one.add_argument("--include", help="folder with task files of your own")
    one.add_argument("--tokenizer", help="default: the model's folder (fwa export --tokenizer)")
    one.add_argument("--shots", type=int)
    one.add_argument("--limit", type=int)
    one.add_argument("--batch", type=int, default=8)
    one.add_argument("--max-length", type=int)
    one.add_argument("--dtype", default="float32")
    one.add_argument("--device", default="cpu")
    one.add_argument("--json", help="write the results here")
    one.set_defaults(run=evaluate)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
