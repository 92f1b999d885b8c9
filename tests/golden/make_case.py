#!/usr/bin/env python3
"""A golden case from a rule's definition: its step, written with numpy, and nothing of fwa's own code.

    python3 tests/golden/make_case.py RULE.py tests/golden/RULE_carry.h5
    fwa op --check tests/golden/RULE_carry.h5

RULE.py holds step(S, x, v, ...): from S [K,V] before a step to S after it, of one head; x [K] and v [V] are the pair
that is written. Further arguments are the rule's scalars, by name: beta, lambda_, log_decay. Optional beside it: `rule`,
a name (default: that of the file); `attributes`, options of the case (fwa help op), such as {"shift": 1}; and
`per_channel = True` where beta is one for every value column [V]. Then the next two lines are all of a delta rule:

    def step(S, x, v, beta):
        return S + beta * np.outer(x, v - S.T @ x)        # with `import numpy as np` in front

The case is a segment that continues another: S0, and under shift 1 the key before it, come in; gradients arrive at o and
at what leaves. Keys are 0.6 to 1.2 long and beta is below 1.2, so that delta rules do not grow. Gradients are by complex
steps, exact to rounding, so the step must be analytic: write sums of squares, not np.abs, np.linalg.norm or conj(). Needs
numpy and h5py.
"""
import argparse
import inspect
import runpy
import sys
from pathlib import Path

import h5py
import numpy as np

B, H, K, V = 1, 2, 8, 12
SCALARS = ("beta", "lambda_", "log_decay")
TINY = 1e-30  # of a complex step: its square is far below rounding


def draw(rng, T, scalars, per_channel, shifted):
    """Inputs of the case by name, and the gradients that arrive at o, S and k_last."""
    inputs = {name: rng.standard_normal((B, T, H, n)) for name, n in (("q", K), ("k", K), ("v", V))}
    inputs["k"] *= rng.uniform(0.6, 1.2, (B, T, H, 1)) / np.linalg.norm(inputs["k"], axis=-1, keepdims=True)
    between = {"beta": (0.1, 1.2), "lambda_": (0.01, 0.5), "log_decay": (-0.5, 0.0)}
    for name in scalars:
        shape = (B, T, H, V) if name == "beta" and per_channel else (B, T, H)
        inputs[name] = rng.uniform(*between[name], shape)
    inputs["S0"] = rng.standard_normal((B, H, K, V))
    arriving = {"o": rng.standard_normal((B, T, H, V)), "S": rng.standard_normal((B, H, K, V))}
    if shifted:
        inputs["k_prev"] = inputs["k"][:, -1].copy()
        arriving["k_last"] = rng.standard_normal((B, H, K))
    return inputs, arriving


def run_head(step, inputs, scalars, h, before):
    """o [T,V] and S [K,V] of head h."""
    S, o = inputs["S0"][0, h], []
    keys = inputs["k"][0, :, h]
    if "k_prev" in inputs:
        keys = np.concatenate([inputs["k_prev"][:, h], keys[:-1]])
    for t in range(len(keys)):
        q = inputs["q"][0, t, h]
        if before:
            o.append(S.T @ q)
        S = step(S, keys[t], inputs["v"][0, t, h], **{name: inputs[name][0, t, h] for name in scalars})
        if not before:
            o.append(S.T @ q)
    return np.stack(o), S


def heads_of(name):
    return 1 if name in ("S0", "k_prev") else 2  # the axis


def loss(step, inputs, arriving, scalars, h, before):
    o, S = run_head(step, inputs, scalars, h, before)
    value = (o * arriving["o"][0, :, h]).sum() + (S * arriving["S"][0, h]).sum()
    if "k_last" in arriving:
        value = value + (inputs["k"][0, -1, h] * arriving["k_last"][0, h]).sum()
    return value


def gradients(step, inputs, arriving, scalars, before):
    found = {}
    for name, x in inputs.items():
        found[name] = np.empty_like(x)
        for at in np.ndindex(x.shape):
            moved = x.astype(complex)
            moved[at] += 1j * TINY
            moved = {**inputs, name: moved}
            found[name][at] = loss(step, moved, arriving, scalars, at[heads_of(name)], before).imag / TINY
    return found


def check_analytic(step, inputs, arriving, scalars, before, found):
    """Differences along a random direction agree with the complex steps."""
    rng, d = np.random.default_rng(1), 1e-6
    for name, x in inputs.items():
        way = rng.standard_normal(x.shape)
        ends = [sum(loss(step, {**inputs, name: x + sign * d * way}, arriving, scalars, h, before) for h in range(H))
                for sign in (1, -1)]
        slope, expected = (ends[0] - ends[1]) / (2 * d), (found[name] * way).sum()
        scale = np.sqrt((found[name] ** 2).sum())
        if not abs(slope - expected) <= 1e-5 * scale + 1e-7:
            sys.exit(f"make_case.py: along {name} differences give {slope:.6g}, complex steps {expected:.6g}: the step "
                     "is not analytic; write sums of squares, not np.abs, np.linalg.norm or conj()")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("definition", type=Path, help="RULE.py with step()")
    parser.add_argument("case", type=Path, help="the file to write")
    parser.add_argument("--tokens", type=int, default=37)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    module = runpy.run_path(str(options.definition))
    step = module.get("step") or sys.exit(f"make_case.py: {options.definition} has no step(S, x, v, ...)")
    scalars = list(inspect.signature(step).parameters)[3:]
    if not set(scalars) <= set(SCALARS):
        sys.exit(f"make_case.py: step takes {', '.join(scalars)} behind S, x, v; expected some of {', '.join(SCALARS)}")
    attributes = module.get("attributes", {})
    shifted, before = attributes.get("shift") == 1, attributes.get("raw") == 0

    inputs, arriving = draw(np.random.default_rng(options.seed), options.tokens, scalars,
                            module.get("per_channel", False), shifted)
    heads = [run_head(step, inputs, scalars, h, before) for h in range(H)]
    found = gradients(step, inputs, arriving, scalars, before)
    check_analytic(step, inputs, arriving, scalars, before, found)
    with h5py.File(options.case, "w") as file:
        file.attrs["rule"] = module.get("rule", options.definition.stem)
        for name, value in attributes.items():
            file.attrs[name] = value
        for name, value in inputs.items():
            file["in/" + name.rstrip("_")] = value
            file["grad/d" + name.rstrip("_")] = found[name]
        for name, value in arriving.items():
            file["in/d" + name] = value
        file["out/o"] = np.stack([o for o, _ in heads], axis=1)[None]
        file["out/S"] = np.stack([S for _, S in heads])[None]
        if shifted:
            file["out/k_last"] = inputs["k"][:, -1]


if __name__ == "__main__":
    main()
