#!/usr/bin/env bash
# Builds the fuzz targets of the package in DIR with libFuzzer and coverage, with the toolchain of the house: what
# cargo-fuzz does, without it.
#
#   build.sh DIR [ARGUMENTS OF cargo build]
set -euo pipefail
cd "${1:?build.sh wants the directory of the package}"
shift
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
target=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="--cfg fuzzing $coverage -Ccodegen-units=4" cargo build --release --target "$target" "$@"
