//! Whether a product of quantised weights is right, whatever its activations were rounded to.

use std::collections::HashMap;

use gllm_kernels_core::{Caps, Kernels, QuantFormat, QuantRef};

use super::worst::Worst;
use crate::arena::numbers;
use crate::workload::{dot_bound, Case};

/// What a row of quantised weights gives, and how far it may be off.
#[derive(Clone, Copy)]
struct Expected {
    /// With exact activations.
    value: f64,
    /// Sum of the terms' magnitudes.
    scale: f64,
    /// Largest error allowed.
    allowed: f64,
}

impl Expected {
    /// Rounding an activation to 8 bits is off by at most half a step, a 127th of the largest. Steps of
    /// 32 activations, and their sums for weights with an offset (at most about twice their largest), may be
    /// rounded to f16, by a part in 2^11. These errors are independent: sums of n of them, each
    /// between -e and e, exceed 4 e sqrt(n) less than once in 1000 times by Hoeffding's inequality and,
    /// being close to a normal distribution, far more rarely. A wrong block does.
    fn of(weights: &[f32], x: &[f32]) -> Self {
        let terms = || weights.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
        let scale = terms().map(f64::abs).sum();
        let largest = |all: &[f32]| all.iter().fold(0.0, |m, v| f64::max(m, v.abs().into()));
        let step = largest(x) / 127.0;
        let steps = weights.iter().map(|&w| (f64::from(w) * step / 2.0).powi(2));
        let groups = weights.chunks(32).zip(x.chunks(32)).map(|(w, x)| {
            let product: f64 = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
            let sum: f64 = x.iter().map(|&x| f64::from(x)).sum();
            ((product.abs() + 2.0 * largest(w) * sum.abs()) / 2048.0).powi(2)
        });
        let squares: f64 = steps.chain(groups).sum();
        let allowed = 4.0 * squares.sqrt() + dot_bound(x.len()) * scale;
        Self { value: terms().sum(), scale, allowed }
    }
}

/// Weights are as they are stored; fewer rows than there are outputs repeat. Outputs are those of each row of
/// activations. Returns the largest difference between the two sides, relative to the magnitudes of the terms.
pub fn check(case: &Case, inputs: &[&[u8]], ours: &[f32], theirs: &[f32]) -> Result<f64, String> {
    let (format, cols) = (case.format.ok_or("no format")?, case.shape.k);
    let x = numbers::<f32>(inputs[1]);
    let row_bytes = format.row_bytes(cols).map_err(|e| e.to_string())?;
    let rows = ours.len() / (x.len() / cols);
    // Rows repeat anyway: those that differ, decoded, and which of them each row is.
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    let (mut decoded, mut which): (Vec<Vec<f32>>, Vec<usize>) = Default::default();
    for row in inputs[0].chunks(row_bytes) {
        let next = decoded.len();
        let at = *seen.entry(row).or_insert(next);
        if at == next {
            let mut values = vec![0.0; cols];
            decode(format, row, &mut values)?;
            decoded.push(values);
        }
        which.push(at);
    }
    let mut worst = Worst::default();
    for (m, x) in x.chunks(cols).enumerate() {
        let expected: Vec<Expected> = decoded.iter().map(|row| Expected::of(row, x)).collect();
        for r in 0..rows {
            let (i, Expected { value, scale, allowed }) = (m * rows + r, expected[which[r % which.len()]]);
            for (whose, got) in [("ours", ours[i]), ("theirs", theirs[i])] {
                let see = Worst::default().see(i, got.into(), value, scale, allowed / scale);
                see.map_err(|e| format!("{whose}: {e}"))?;
            }
            worst.see(i, theirs[i].into(), ours[i].into(), scale, 2.0 * allowed / scale)?;
        }
    }
    Ok(worst.0)
}

fn decode(format: QuantFormat, row: &[u8], out: &mut [f32]) -> Result<(), String> {
    let weights = QuantRef::new(row, format, 1, out.len());
    weights.and_then(|w| Kernels::with(Caps::SCALAR).dequant(w, out)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::bytes;
    use crate::workload::Shape;
    use gllm_kernels_core::ElementType;

    const ROWS: usize = 3;
    const COLS: usize = 2048;

    /// Two rows of Q8_0, which repeat: random codes, scale 1.
    fn weights() -> (Vec<u8>, Vec<f32>) {
        let mut state = 1u32;
        let mut code = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let blocks = 2 * COLS / 32;
        let stored: Vec<u8> = (0..blocks)
            .flat_map(|_| [0, 0x3c].into_iter().chain((0..32).map(|_| code()).collect::<Vec<_>>()))
            .collect();
        let decoded = stored.chunks(34).flat_map(|b| b[2..].iter().map(|&q| f32::from(q as i8)));
        let decoded = decoded.collect();
        (stored, decoded)
    }

    fn product(w: &[f32], x: &[f32]) -> Vec<f32> {
        let rows = w.chunks(COLS).cycle().take(ROWS);
        rows.map(|row| row.iter().zip(x).map(|(w, x)| f64::from(w * x)).sum::<f64>() as f32).collect()
    }

    #[test]
    fn rounded_activations_are_right_and_nothing_else_is() {
        let (stored, decoded) = weights();
        let x: Vec<f32> = (0..COLS).map(|i| ((i * i * 37 % 2003) as f32 / 1001.5 - 1.0) * 3.0).collect();
        let case = Case {
            element: ElementType::F32,
            format: Some(QuantFormat::Q8_0),
            shape: Shape { m: 1, n: ROWS, k: COLS },
        };
        let inputs = [&stored[..], bytes(&x)];
        let exact = product(&decoded, &x);
        assert!(check(&case, &inputs, &exact, &exact).is_ok_and(|e| e == 0.0));

        let step = 3.0 / 127.0;
        let rounded: Vec<f32> = x.iter().map(|x| (x / step).round() * step).collect();
        let rounded = product(&decoded, &rounded);
        assert!(check(&case, &inputs, &rounded, &exact).is_ok_and(|e| e > 0.0 && e < 1e-2));
        assert!(check(&case, &inputs, &exact, &rounded).is_ok());

        // Without a block, and with one twice.
        let mut less = x.clone();
        less[32..64].fill(0.0);
        let mut twice = x.clone();
        twice.copy_within(..32, 32);
        for wrong in [less, twice] {
            let wrong = product(&decoded, &wrong);
            let text = check(&case, &inputs, &exact, &wrong).unwrap_err();
            assert!(text.contains("theirs: output"), "{text}");
            let text = check(&case, &inputs, &wrong, &exact).unwrap_err();
            assert!(text.contains("ours: output"), "{text}");
        }
        assert!(check(&case, &inputs, &exact, &[f32::NAN; ROWS]).is_err());
    }
}
