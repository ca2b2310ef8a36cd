use gllm_kernels_core::*;
#[test]
fn t() {
    for l in IsaLevel::ALL {
        let Ok(k) = Kernels::<f32>::forced(l) else { continue };
        let n = 700_001;
        let x: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
        let s: f64 = x.iter().map(|&v| (v * v) as f64).sum();
        println!("{l} {} {}", k.vec_dot(&x, &x).unwrap(), s);
        assert_eq!(k.vec_max(&x[..13]).unwrap(), 6.0);
    }
    for r in kernels() {
        println!("{}", r.name)
    }
    println!("{:?}", Caps::detect());
}
