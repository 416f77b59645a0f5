#!/usr/bin/env bash
# Copies an example into a repository of its own under build/demo and runs tile-agent on its kernel.
# Usage: demo.sh BIN EXAMPLE, where BIN holds the environment's commands.
set -euo pipefail
bin=$1 example=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$here/../build/demo/$example
rm -rf "$work"
mkdir -p "$work"
cp -R "$here/$example/." "$work"
cd "$work"
git init --quiet --initial-branch=main
git add --all
git -c user.name=demo -c user.email=demo@localhost commit --quiet --message "The example as it is"
"$bin/tile-agent" run --yes --kernel "${example#*_}.py"
echo
echo "The table: $PWD/sandbox/perf_results.md"
