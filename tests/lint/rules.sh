#!/bin/sh
# rules.sh ROOT: every rule of kernels/mixers.def has a page docs/math/RULE.md and a row in the table of pages.
cd "$1" || exit 2
rules=$(sed -n 's/^FWA_MIXER(\([a-z0-9_]*\),.*/\1/p' kernels/mixers.def)
[ -n "$rules" ] || { echo "kernels/mixers.def lists no rules" && exit 1; }
bad=0
for rule in $rules; do
    [ -f "docs/math/$rule.md" ] || { echo "rule $rule has no page docs/math/$rule.md: docs/math/deltanet.md is a short one to begin with" && bad=1; }
    grep -qF "| [$rule]($rule.md) |" docs/math/README.md ||
        { echo "rule $rule has no row in the first table of docs/math/README.md: | [$rule]($rule.md) | ... |" && bad=1; }
done
exit $bad
