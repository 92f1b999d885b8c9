#!/bin/sh
# tests/golden/make_case.py: cases made from a step of a few lines agree with fwa, another step's do not, and what gradients
# cannot be taken of is refused. Skips where python3 has no numpy or h5py; FWA_PYTHON names another python.
. "$(dirname "$0")/lib.sh"
needs_python 'h5py, numpy'
make=${FWA_SOURCE_DIR:?}/tests/golden/make_case.py

# made RULE.py: leaves case.h5.
made() {
    run "$python" "$make" "$1" case.h5 --tokens 9
    check "$1 gave no case: $(cat err)" test "$code" = 0
}

cat >gated_deltanet.py <<'END'
import numpy as np


def step(S, x, v, beta, log_decay):
    S = np.exp(log_decay) * S
    return S + beta * np.outer(x, v - S.T @ x)
END
made gated_deltanet.py
run "$FWA" op --check case.h5
expect 0
check "not all of it was compared: $(cat out)" grep -q ' 8 tensors' out

cat >shifted.py <<'END'
import numpy as np

rule, per_channel = "falcon2a", True
attributes = {"shift": 1, "raw": 0, "eta_max": 0}


def step(S, x, v, beta, lambda_):
    E = x @ x
    eta = beta / (E + lambda_ * E + 1e-3)
    return (1 - eta * lambda_ * E) * S + eta * np.outer(x, v)
END
made shifted.py
run "$FWA" op --check case.h5
expect 0
check "not all of it was compared: $(cat out)" grep -q ' 10 tensors' out

sed 's/S.T @ x/1.001 * S.T @ x/' gated_deltanet.py >wrong.py
echo 'rule = "gated_deltanet"' >>wrong.py
made wrong.py
run "$FWA" op --check case.h5
expect 1 "1 of 1 case off"

sed 's/E = x @ x/E = np.linalg.norm(x) ** 2/' shifted.py >norm.py
run "$python" "$make" norm.py case.h5 --tokens 9
check "a norm was taken for analytic" test "$code" = 1
check "the refusal names no reason" grep -q 'not analytic' err
sed 's/log_decay/decay/' gated_deltanet.py >unknown.py
run "$python" "$make" unknown.py case.h5
check "an unknown scalar was taken" grep -q 'expected some of beta' err
finish
