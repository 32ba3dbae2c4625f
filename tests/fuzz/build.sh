#!/usr/bin/env bash
# Builds the fuzz targets with libFuzzer and coverage, with the toolchain of the house: what cargo-fuzz does, without it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
target=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="$coverage -Ccodegen-units=4" cargo build --release --target "$target" "$@"
