/* Reset on QEMU's virt board, at EL1: SIMD on, MMU on, a stack, main, and its result to the host. */

    .section .init, "ax"
    .globl _start
_start:
    /* FP and SIMD do not trap (CPACR_EL1.FPEN). */
    mov     x0, #3 << 20
    msr     cpacr_el1, x0
    isb
    adr     x0, vectors
    msr     vbar_el1, x0

    /* MMU and caches: memory type 0 is device, 1 is normal write-back; 39 bits of address, 4 KiB granule. */
    ldr     x0, =0xff04
    msr     mair_el1, x0
    ldr     x0, =0x80803519
    msr     tcr_el1, x0
    adrp    x0, map
    msr     ttbr0_el1, x0
    tlbi    vmalle1
    dsb     nsh
    isb
    mrs     x0, sctlr_el1
    mov     x1, #0x1005
    orr     x0, x0, x1
    msr     sctlr_el1, x0
    isb

    ldr     x0, =stack_top
    mov     sp, x0
    ldr     x0, =bss_begin
    ldr     x1, =bss_end
1:  cmp     x0, x1
    b.hs    2f
    stp     xzr, xzr, [x0], #16
    b       1b
2:  bl      main
    b       leave

/* Semihosting: SYS_EXIT_EXTENDED with the code in w0. */
leave:
    ldr     x1, =0x20026
    sxtw    x2, w0
    stp     x1, x2, [sp, #-16]!
    mov     x1, sp
    mov     w0, #0x20
    hlt     #0xf000
    b       .

/* Writes a string: SYS_WRITE0. */
    .globl host_write
host_write:
    mov     x1, x0
    mov     w0, #4
    hlt     #0xf000
    ret

/* Any exception ends the program with 102. */
    .p2align 11
vectors:
    .rept 16
    mov     w0, #102
    b       leave
    .p2align 7
    .endr

    .section .data
    .p2align 12
/* Two blocks of 1 GiB, at their own addresses: devices, then normal memory. */
map:
    .quad   0x60000000000401
    .quad   0x40000705
    .fill   510, 8, 0
