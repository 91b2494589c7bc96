#!/usr/bin/env bash
# Run everything that needs a GPU, in less than nine minutes.
#   benchmarks/gpu_suite.sh [DIRECTORY]           directory of the results; default: $OUT, else /tmp/gpu_suite
#   benchmarks/gpu_suite.sh --small [DIRECTORY]   the same parts with tiny shapes, on a CPU if there is no GPU
# Each part has a time limit, a log and a JSON document. A part that fails does not affect the others. summary.md and
# summary.json combine them. The exit status is 1 if a part failed.
#   PYTHON=python3         Python interpreter with torch
#   WHEELS=directory       wheels of missing packages, for machines without internet
#   TOKENIZER=directory    tokenizer of the random models; default: BERT's if installed, else trained on the text
#   TOTAL=530              total seconds; three times as many with --small, for slow CPUs
#   ONLY="drift epoch"     run only these parts and the environment
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

small=
[ "${1:-}" = --small ] && { small=1; shift; }
out="${1:-${OUT:-${TMPDIR:-/tmp}/gpu_suite}}"
mkdir -p "$out"
out="$(cd "$out" && pwd)"
python="${PYTHON:-python3}"
slack=1
[ -n "$small" ] && slack=3
total="${TOTAL:-$((530 * slack))}"
if ! "$python" -c 'import torch' 2> /dev/null; then
  echo "$python has no torch → set PYTHON to an interpreter with torch" >&2
  exit 2
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
: > "$out/parts.tsv"

export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export CSE_HOME="$work/home" TOKENIZERS_PARALLELISM=false MLFLOW_DISABLE_TELEMETRY=true
export HF_HUB_OFFLINE=1 TQDM_DISABLE=1 WANDB_DISABLED=true
export TORCHINDUCTOR_CACHE_DIR="$work/inductor" TRITON_CACHE_DIR="$work/triton"
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0}"   # one GPU: the peers would use all GPUs

# part NAME SECONDS COMMAND…: run the command within its limit and the remaining total time.
part() {
  local name="$1" limit=$(($2 * slack)) status began=$SECONDS
  shift 2
  if [ -n "${ONLY:-}" ] && [ "$name" != environment ] && ! grep -qw -- "$name" <<< "$ONLY"; then return; fi
  local left=$((total - SECONDS))
  [ "$limit" -gt "$left" ] && limit=$left
  if [ "$limit" -lt 5 ]; then
    printf '%s\t125\t0\t0\n' "$name" >> "$out/parts.tsv"
    return
  fi
  printf '[%3d s] %s (at most %d s)\n' "$SECONDS" "$name" "$limit"
  timeout --kill-after=5 "$limit" "$@" > "$out/$name.log" 2>&1
  status=$?
  printf '%s\t%d\t%d\t%d\n' "$name" "$status" "$((SECONDS - began))" "$limit" >> "$out/parts.tsv"
}

install_missing() {
  local missing
  missing="$("$python" -m benchmarks.gpu.environment --missing | tr '\n' ' ')"
  [ -z "${missing// }" ] && return
  printf '[%3d s] missing: %s\n' "$SECONDS" "$missing"
  export PYTHONPATH="$PYTHONPATH:$work/site"
  if [ -n "${WHEELS:-}" ]; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$WHEELS"/*.whl
  else
    # shellcheck disable=SC2086  # names, one by one
    timeout 90 "$python" -m pip install -q --retries 0 --timeout 5 --target "$work/site" $missing
  fi > "$out/install.log" 2>&1 || tail -n 2 "$out/install.log"
}

install_missing
device="$("$python" -c 'import torch; print("cuda" if torch.cuda.is_available() else "cpu")' 2> /dev/null || echo cpu)"
if [ "$device" = cpu ] && [ -z "$small" ]; then
  echo "no GPU found: using --small"
  small=1 slack=3
fi

tokenizer=()
[ -n "${TOKENIZER:-}" ] && tokenizer=(--tokenizer "$TOKENIZER")
own=(--device "$device" "${tokenizer[@]}")
if [ -n "$small" ]; then
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" TORCHINDUCTOR_COMPILE_THREADS=1
  big=tiny mini=tiny half=bf16 text=generated
  turns=(--rounds 2 --steps 2 --warm 1 --agree 2 --rows 400 --batch 16)
  recipes=(simcse_en conisi_s_en)
  equal=(--only simcse_en ifcl_en mocose_en) drift=(--steps 3 --batch 8) batches=(--batch 4 --most 8 --mini-batch-size 4)
  epoch=(--seconds 1 --rows 400 --batch 8) scoring=(--sentences 400 --repeats 2)
else
  big=bert-base mini=mini half=bf16 text=wiki1m_prefix
  [ -f "${CSE_DATA:-../shared/data}/train/wiki1m_prefix.txt" ] || text=generated
  turns=(--rounds 3 --steps 30 --warm 5 --rows 20000)
  recipes=(simcse_en focal_infonce_en ifcl_en mocose_en conisi_s_en)
  equal=(--workers 8) drift=(--steps 50) batches=(--batch 64 --seconds 40)
  epoch=(--seconds 30) scoring=()
fi

# steps NAME SECONDS SHAPE PRECISION OPTIONS…: one benchmark of training steps.
steps() {
  local name="$1" limit="$2" shape="$3" precision="$4"
  shift 4
  part "$name" "$limit" "$python" -m benchmarks.training "${own[@]}" --shape "$shape" --precision "$precision" \
    --texts "$text" "${turns[@]}" --json "$out/$name.json" --markdown "$out/$name.md" "$@"
}

# gpu NAME SECONDS MODULE OPTIONS…: one of the other parts.
gpu() {
  local name="$1" limit="$2" module="$3"
  shift 3
  part "$name" "$limit" "$python" -m "benchmarks.gpu.$module" --json "$out/$name.json" "$@"
}

gpu environment 30 environment
gpu equality 90 equality --device "$device" "${equal[@]}"
steps compile 120 "$big" "$half" --parts --agree 0 --variants train.compile=on
fast=() also=()
if [ -s "$out/compile.json" ]; then   # else the following parts would fail too
  fast=(--set train.compile=auto)
  [ "$device" = cuda ] && also=(--also train.compile=on)
fi
gpu epoch 130 epoch "${own[@]}" --shape "$big" --precision "$half" --text "$text" "${epoch[@]}" "${fast[@]}"
steps steps_big_half 90 "$big" "$half" --parts peers methods --recipes "${recipes[@]}" "${also[@]}"
steps steps_mini_half 70 "$mini" "$half" --parts peers "${also[@]}"
gpu scoring 50 scoring "${own[@]}" --shape "$big" --precision "$half" "${scoring[@]}"
gpu drift 60 drift "${own[@]}" --shape "$big" --text "$text" "${drift[@]}"
steps steps_big_single 60 "$big" fp32 --parts peers --agree 0
steps steps_mini_single 50 "$mini" fp32 --parts peers --agree 0
gpu largest 75 largest "${own[@]}" --shape "$big" --precision "$half" --text "$text" "${batches[@]}"
# The tests of `equality` do not run twice.
part tests 60 "$python" -m pytest -q -n 0 -m gpu -p no:cacheprovider tests/gpu -k "not first_ten_losses"
steps memory 60 "$big" "$half" --parts memory --agree 0

"$python" -m benchmarks.gpu.summary "$out"
status=$?
echo "[$SECONDS s] $out/summary.md"
exit "$status"
