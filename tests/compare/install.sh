#!/bin/sh
# Install the program of a commit: install.sh COMMIT ENVIRONMENT PYTHON
#
# The program is a wheel of the commit's files, with the versions of its development lock, because
# Delta Lake, Iceberg and the alignment filter are extras.
set -eu
commit=$1 environment=$2 python=$3
git rev-parse --verify --quiet "$commit^{commit}" > /dev/null \
	|| { echo "There is no commit $commit. Choose one with COMMIT=..." >&2; exit 1; }
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
git archive "$commit" | tar -x -C "$files"
rm -rf "$environment"
"$python" -m venv "$environment"
echo "Installing $commit into $environment: 3 GB, takes minutes"
pip="$environment/bin/python -m pip --quiet"
$pip install --no-deps --require-hashes -r "$files/requirements/dev.lock"
$pip wheel --no-deps --wheel-dir "$files/wheels" "$files"
$pip install --no-deps "$files"/wheels/*.whl
touch "$environment/.installed"
