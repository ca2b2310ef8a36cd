# Shared by the scripts here; sourced.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# One target directory for every workspace: nothing is built twice.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
work=$CARGO_TARGET_DIR/ci
mkdir -p "$work"

arm_linux=aarch64-unknown-linux-gnu
arm_bare=aarch64-unknown-none
# Builds of the core alone, on top of $arm_bare.
core_targets="thumbv7em-none-eabi riscv32imac-unknown-none-elf wasm32-unknown-unknown x86_64-unknown-none"
# Baseline NEON; + dotprod and fp16; everything QEMU has.
arm_cpus="cortex-a53 neoverse-n1 max"

# Packages and features of whatever is compiled for this machine without optimisation, and for arm64 Linux: the same
# ones everywhere, so that nothing is compiled for one part more than for another.
everything=(--workspace --features gllm-kernels-std/wgpu-shaders,gllm-kernels-std/rocm)
# There the core is tested so that sizes that overflow and assertions that fail are panics.
core_profile=profile.dev.package.gllm-kernels-core
checked=(--config "$core_profile.overflow-checks=true" --config "$core_profile.debug-assertions=true")
everything_on_arm=(--workspace --exclude gllm-bench)

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc

# Shows a command and runs it.
run() {
    echo "+ $*"
    "$@"
}

have() { command -v "$1" >/dev/null 2>&1; }

# The oldest compiler that builds this project.
min_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# Debian's compiler, if it is new enough.
debian_rustc() {
    local v
    v=$(/usr/bin/rustc -V 2>/dev/null | cut -d' ' -f2) || return 1
    [ -n "$v" ] && [ "$(printf '%s\n' "$min_rust" "$v" | sort -V | head -1)" = "$min_rust" ] && echo /usr/bin/rustc
}

has_std() { # RUSTC TRIPLE
    local dir
    dir=$("$1" --print target-libdir --target "$2" 2>/dev/null) && [ -d "$dir" ]
}

# How TRIPLE is built here: `default` (the default toolchain has it), `debian` (Debian's compiler has
# it), `debian-core` (Debian's compiler, building `core` from source) or `none`.
# GLLM_CI_TOOLCHAIN=debian leaves the default toolchain out.
toolchain_for() {
    if [ "${GLLM_CI_TOOLCHAIN:-}" != debian ] && has_std rustc "$1"; then
        echo default
    elif ! debian_rustc >/dev/null; then
        echo none
    elif has_std /usr/bin/rustc "$1"; then
        echo debian
    elif [ "$1" != "$arm_linux" ] && [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/core" ]; then
        echo debian-core
    else
        echo none
    fi
}

# cargo COMMAND --target TRIPLE ..., by whichever toolchain has it.
cargo_for() { # TRIPLE COMMAND ARGS...
    local triple=$1 command=$2
    shift 2
    case $(toolchain_for "$triple") in
    default) cargo "$command" --target "$triple" "$@" ;;
    debian) RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc cargo "$command" --target "$triple" "$@" ;;
    debian-core)
        # Building core is an unstable feature of cargo. Debian's compiler brings no linker for
        # bare metal.
        CARGO_TARGET_AARCH64_UNKNOWN_NONE_LINKER=aarch64-linux-gnu-ld RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
            cargo "$command" -Zbuild-std=core --target "$triple" "$@"
        ;;
    none)
        echo "no Rust toolchain here builds $triple (ci/setup installs one)" >&2
        return 1
        ;;
    esac
}

# The arm64 C library, where QEMU's user mode finds it with `-L /`.
arm_libc=/lib/ld-linux-aarch64.so.1

# This machine's target.
host() { rustc -vV | sed -n 's/^host: //p'; }

# The variable that names cargo's runner for a target.
runner_of() { # TRIPLE
    local triple=${1//-/_}
    echo "CARGO_TARGET_${triple^^}_RUNNER"
}

# Sets cargo's runner for arm64 Linux programs. `-L /` because Debian's cross libraries under
# /usr/aarch64-linux-gnu hang in pthread_create on some kernels.
emulate() { # CPU
    export "$(runner_of $arm_linux)=$root/ci/timed qemu-aarch64-static -L / -cpu $1"
}

# Whether arm64 Linux programs can be built and run; if not, says what is missing.
can_emulate() {
    local missing=""
    [ "$(toolchain_for $arm_linux)" != none ] || missing+=" a Rust toolchain for $arm_linux,"
    have aarch64-linux-gnu-gcc || missing+=" aarch64-linux-gnu-gcc,"
    have qemu-aarch64-static || missing+=" qemu-aarch64-static,"
    [ -e $arm_libc ] || missing+=" libc6:arm64,"
    [ -z "$missing" ] || { echo "missing:${missing%,}"; return 1; }
}

# The oldest LLVM with a scheduling model of Neoverse-V1.
min_llvm=17

# The newest version here of an LLVM tool, if it is new enough.
llvm_tool() { # NAME
    local tool version
    for tool in $(compgen -c "llvm-$1" | grep -xE "llvm-$1(-[0-9]+)?" | sort -rV); do
        version=$($tool --version | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p')
        [ "${version:-0}" -lt $min_llvm ] || { echo "$tool"; return; }
    done
    return 1
}

# Whether the speed of Arm loops can be predicted; if not, says what is missing.
can_predict() {
    [ "$(toolchain_for $arm_bare)" != none ] || { echo "no toolchain for $arm_bare"; return 1; }
    llvm_tool mca >/dev/null || { echo "llvm-mca $min_llvm or later is missing"; return 1; }
}
