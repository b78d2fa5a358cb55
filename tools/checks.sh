# shellcheck shell=bash disable=SC2154
# What CI checks besides the tests, one function per stage; sourced by ./dev check.

check_format() {
  git ls-files -z '*.h' '*.cpp' | xargs -0 -r clang-format-14 --dry-run -Werror || fail "run ./dev format and commit what it changes"
}

check_includes() { .venv/bin/python tools/check_includes.py; }

check_tidy() {
  configure release
  .venv/bin/python tools/run_clang_tidy.py build/release --jobs "$jobs"
}

check_asan() {
  compile asan
  ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    sanitized_tests asan --label-exclude slow
}

check_tsan() {
  compile tsan runtime_tests
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp sanitized_tests tsan --label-regex threads
}

sanitized_tests() {
  local preset=$1
  shift
  quietly "Testing $preset" "test-$preset.log" \
    ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error "$@"
  grep 'tests passed' ".cache/logs/test-$preset.log" | sed 's/^/  /'
}

# run_checks [STAGE...]: all stages in this order, cheap ones first; the first that fails ends it.
run_checks() {
  local stage start
  [ $# -gt 0 ] || set -- format includes tidy asan tsan
  for stage in "$@"; do
    declare -F "check_$stage" >/dev/null || fail "no check is called '$stage'; there are format, includes, tidy, asan, tsan"
    start=$SECONDS
    say "== Check: $stage"
    trap 'status=$?; [ $status = 0 ] || say "dev: check '"$stage"' failed"; exit $status' EXIT
    "check_$stage"
    say "== $stage is clean ($((SECONDS - start)) s)"
  done
}
