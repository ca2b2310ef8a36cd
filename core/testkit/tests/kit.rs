//! The kit notices what it is there to notice.

use std::ffi::c_void;
use std::ptr::null_mut;

use gllm_kernels_core::{bf16, f16, QuantFormat};
use gllm_testkit::quant::halves;
use gllm_testkit::{call, canary, guard, numeric, Counting, Edge, Guarded, Report};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Functions that break the calling convention, and what the frame must say.
macro_rules! clobbers {
    ($abi:literal: $($name:ident = $what:literal: $($line:literal),*;)*) => {
        $(#[unsafe(naked)]
        unsafe extern $abi fn $name(_: *mut c_void) {
            std::arch::naked_asm!($($line),*)
        })*
        const CLOBBERS: &[(canary::Thunk, &str)] = &[$(($name, $what)),*];
    };
}

#[cfg(target_arch = "x86_64")]
clobbers! { "sysv64":
    rbx = "rbx": "xor ebx, ebx", "ret";
    rbp = "rbp": "xor ebp, ebp", "ret";
    r12 = "r12": "inc r12", "ret";
    r13 = "r13": "inc r13", "ret";
    r14 = "r14": "mov r14, r15", "ret";
    r15 = "r15": "mov r15, rsp", "ret";
    direction = "direction flag": "std", "ret";
    rounding = "MXCSR": "push 0x7f80", "ldmxcsr [rsp]", "pop rax", "ret";
    flush = "MXCSR": "push 0x9fc0", "ldmxcsr [rsp]", "pop rax", "ret";
    precision = "x87 control": "push 0x27f", "fldcw [rsp]", "pop rax", "ret";
    stack = "x87 stack": "fld1", "ret";
    mmx = "x87 stack": "pxor mm0, mm0", "ret";
}
#[cfg(target_arch = "aarch64")]
clobbers! { "C":
    x19 = "x19": "mov x19, 0", "ret";
    x20 = "x20": "mov x20, x19", "ret";
    x24 = "x24": "mov x24, sp", "ret";
    x28 = "x28": "mov x28, 0", "ret";
    x29 = "x29": "mov x29, 0", "ret";
    d8 = "d8": "fmov d8, xzr", "ret";
    d11 = "d11": "movi v11.16b, 1", "ret";
    d15 = "d15": "fmov d15, d14", "ret";
    flush = "FPCR": "mov x9, 0x1000000", "msr fpcr, x9", "ret";
}

#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn canaries_notice_every_register() {
    for &(f, what) in CLOBBERS {
        // SAFETY: the functions ignore their argument, and the frame repairs what they break.
        let said = unsafe { canary::raw(f, null_mut()) }.expect_err(what);
        assert!(said.contains(what), "said {said}, was {what}");
    }
}

#[test]
#[cfg(target_arch = "aarch64")]
fn canaries_leave_upper_halves_alone() {
    clobbers! { "C":
        upper = "": "mov v8.d[1], xzr", "mov v15.d[1], xzr", "ret";
    }
    // SAFETY: ignores its argument.
    assert_eq!(unsafe { canary::raw(CLOBBERS[0].0, null_mut()) }, Ok(()));
}

#[test]
fn calls_return_what_the_closure_returns() {
    let mut x = [1, 2, 3];
    let sum: i32 = call(|| {
        x[0] = 10;
        x.iter().sum()
    });
    assert_eq!((sum, x[0]), (15, 10));
    assert_eq!(canary::violation(), None);
}

#[test]
fn calls_notice_allocations() {
    let v = call(|| vec![1u8; 100]);
    assert_eq!(v.len(), 100);
    assert!(canary::violation().is_some_and(|v| v.contains("alloc")));
    assert_eq!(canary::violation(), None);
}

#[test]
fn pages_around_a_slice_are_inaccessible() {
    for (len, edge) in
        [(1, Edge::Start), (2000, Edge::Start), (1000, Edge::End), (1024, Edge::End), (3, Edge::End)]
    {
        let g = Guarded::<f32>::poisoned(len, edge);
        // Other tests map memory while the list of what is mapped is read: it may lack a page then, but not protect one.
        let none = |p: *const u8| {
            (0..100).any(|_| region::query(p).is_ok_and(|r| r.protection() == region::Protection::NONE))
        };
        let first = g.as_ptr().cast::<u8>();
        let behind = first.wrapping_add(4 * len);
        match edge {
            Edge::Start => assert!(none(first.wrapping_sub(1))),
            Edge::End => assert!(none(behind)),
        }
        let page = region::page::size();
        assert!(none(first.wrapping_sub(page)) && none(behind.wrapping_add(page - 1)));
        assert!(guard::is_poison(&g) && g.intact() && g.iter().all(|x| x.is_nan()));
        assert_eq!(g.len(), len);
    }
}

#[test]
fn writes_into_the_slack_are_noticed() {
    let mut g = Guarded::copy_of(&[1.0f32, 2.0], Edge::End);
    // SAFETY: the page holds more than the two floats at its end.
    unsafe { *g.as_mut_ptr().sub(1) = 3.0 };
    assert!(!g.intact());
    let mut g = Guarded::copy_of(&[1u8], Edge::Start);
    // SAFETY: the page holds more than the byte at its start.
    unsafe { *g.as_mut_ptr().add(1) = 0 };
    assert!(!g.intact());
}

#[test]
fn distances_are_counted_in_ulp() {
    use numeric::ulp_error;
    assert_eq!(ulp_error(1.0f32, 1.0), 0.0);
    assert_eq!(ulp_error(1.0f32.next_up(), 1.0), 1.0);
    assert_eq!(ulp_error(1.0f32, 1.0 + f64::from(f32::EPSILON) / 2.0), 0.5);
    assert_eq!(ulp_error(0.0f32, f64::from(f32::from_bits(3))), 3.0);
    assert_eq!(ulp_error(f32::from_bits(1), 0.0), 1.0);
    assert_eq!(ulp_error(f32::INFINITY, 1e300), 0.0);
    assert_eq!(ulp_error(f32::MAX, f64::INFINITY), 1.0);
    assert_eq!(ulp_error(f32::INFINITY, f64::from(f32::MAX)), 1.0);
    assert!(ulp_error(f32::INFINITY, 1.0) > 1e9);
    assert!(ulp_error(f32::NEG_INFINITY, f64::INFINITY) > 1e6);
    assert_eq!(ulp_error(f32::NAN, f64::NAN), 0.0);
    assert_eq!(ulp_error(f32::NAN, 1.0), f64::INFINITY);
    assert_eq!(ulp_error(1.0f32, f64::NAN), f64::INFINITY);
    assert_eq!(ulp_error(f16::from_f32(1.0), 1.0 + 1.0 / 1024.0), 1.0);
    assert_eq!(ulp_error(f16::INFINITY, 1e6), 0.0);
    assert_eq!(ulp_error(f16::MAX, 65536.0), 1.0);
    assert_eq!(ulp_error(bf16::from_f32(1.0), 1.0 + 1.0 / 128.0), 1.0);
}

#[test]
fn a_nan_error_fails() {
    let mut report = Report::BOUND;
    assert!(report.see(f64::NAN, 1.0, String::new).is_err());
    assert!(report.see(2.0, 1.0, String::new).is_err());
    assert!(report.see(1.0, 1.0, String::new).is_ok());
    assert_eq!(report.max_err, 2.0);
}

#[test]
fn halves_of_blocks_are_found() {
    let some: [(QuantFormat, &[usize]); 10] = [
        (QuantFormat::F16, &[0]),
        (QuantFormat::Q4_0, &[0]),
        (QuantFormat::Q8_1, &[0]),
        (QuantFormat::Q5_1, &[0, 2]),
        (QuantFormat::Q2K, &[80, 82]),
        (QuantFormat::Q3K, &[108]),
        (QuantFormat::Tq2_0, &[64]),
        (QuantFormat::Iq1S, &[0]),
        (QuantFormat::Iq1M, &[]),
        (QuantFormat::Q8K, &[]),
    ];
    some.iter().for_each(|&(format, at)| assert_eq!(halves(format), at, "{format}"));
    // Formats whose scales are f32, of 8 bits, or in pieces, and bf16.
    let none = QuantFormat::ALL.iter().filter(|&&format| halves(format).is_empty()).count();
    assert_eq!(none, 6);
}
