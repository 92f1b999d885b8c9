#!/bin/sh
# The same as in tests/cli, fifty times.
FWA_KILLS=50 exec sh "$(dirname "$0")/../cli/killed_saves.sh"
