// Every format with vectors, in this folder: blocks (`.q`), and what they decode to (`.f32`). Whoever includes this file
// defines `vectors!`.
vectors! {
    Q4_0 = "q4_0";
    Q4_1 = "q4_1";
    Q5_0 = "q5_0";
    Q5_1 = "q5_1";
    Q8_0 = "q8_0";
    Q2K = "q2_k";
    Q3K = "q3_k";
    Q4K = "q4_k";
    Q5K = "q5_k";
    Q6K = "q6_k";
    Iq2Xxs = "iq2_xxs";
    Iq2Xs = "iq2_xs";
    Iq2S = "iq2_s";
    Iq3Xxs = "iq3_xxs";
    Iq3S = "iq3_s";
    Iq1S = "iq1_s";
    Iq1M = "iq1_m";
    Iq4Nl = "iq4_nl";
    Iq4Xs = "iq4_xs";
    Tq1_0 = "tq1_0";
    Tq2_0 = "tq2_0";
    Mxfp4 = "mxfp4";
    Nvfp4 = "nvfp4";
    Q1_0 = "q1_0";
    Q2_0 = "q2_0";
    F16 = "f16";
    Bf16 = "bf16";
}
