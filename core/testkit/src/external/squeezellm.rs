//! SqueezeLLM.

use gllm_kernels_core::{Element, KernelInfo, Outliers, SqueezeLlmParts, SqueezeLlmRef};

use super::grouped::string;
use super::{check_decode, check_product, Layout, Truth};
use crate::data::Source;
use crate::report::{Outcome, Report};
use crate::{Edge, Guarded};

const LAYOUT: Layout = Layout { by_output: true, step: 1 };

/// Outputs, inputs, outliers of an output at most.
const CASES: [(usize, usize, usize); 10] = [
    (0, 32, 3),
    (3, 0, 0),
    (1, 32, 0),
    (5, 64, 64),
    (16, 256, 2),
    (63, 288, 5),
    (64, 96, 1),
    (65, 512, 0),
    (130, 544, 30),
    (3, 4096, 100),
];

/// Calls `check` with weights of every size and number of bits; `weight` draws them.
fn each(
    source: &mut Source,
    weight: impl Fn(&mut Source) -> f32,
    mut check: impl FnMut(SqueezeLlmRef<'_>, Truth, usize) -> Result<(), String>,
) -> Result<(), String> {
    for bits in [3, 4] {
        for (case, (outputs, inputs, most)) in CASES.into_iter().enumerate() {
            let mut indices: Vec<u32> =
                (0..outputs * inputs).map(|_| source.below(1 << bits) as u32).collect();
            let mut table: Vec<f32> = (0..outputs << bits).map(|_| weight(source)).collect();
            // No weight of output 0 is the first number of its table, which makes no difference then.
            indices.iter_mut().take(inputs).for_each(|index| *index = (*index).max(1));
            table.iter_mut().take(1).for_each(|number| *number = f32::INFINITY);
            let (mut rows, mut cols, mut vals) = (vec![0], vec![], vec![]);
            for n in 0..outputs {
                let mut own: Vec<u32> =
                    (0..source.below(most + 1)).map(|_| source.below(inputs) as u32).collect();
                // Every input has one once.
                if most == inputs && n == 0 {
                    own = (0..inputs as u32).collect();
                }
                own.sort_unstable();
                own.dedup();
                vals.extend(own.iter().map(|_| weight(source)));
                cols.extend(own);
                rows.push(cols.len() as u32);
            }
            let mut weights = vec![0; inputs * bits as usize / 32 * outputs];
            for n in 0..outputs {
                let column = string(bits, indices[n * inputs..][..inputs].iter().copied());
                column.iter().enumerate().for_each(|(row, &word)| weights[row * outputs + n] = word);
            }
            let at = |n: usize, k: usize| table[(n << bits) + indices[n * inputs + k] as usize];
            let outlier = |n: usize, k: usize| {
                let range = rows[n] as usize..rows[n + 1] as usize;
                range.into_iter().find(|&i| cols[i] as usize == k).map(|i| vals[i])
            };
            let truth = Truth::new(outputs, inputs, |n, k| match outlier(n, k) {
                Some(value) => (f64::from(at(n, k)) + f64::from(value), at(n, k) + value),
                None => (at(n, k).into(), at(n, k)),
            });
            let edge = Edge::BOTH[case % 2];
            let (rows, cols) = (Guarded::copy_of(&rows, edge), Guarded::copy_of(&cols, edge));
            let (vals, table) = (Guarded::copy_of(&vals, edge), Guarded::copy_of(&table, edge));
            let weights = Guarded::copy_of(&weights, edge);
            let outliers = Outliers { rows: &rows, cols: &cols, vals: &vals };
            let outliers = (most > 0).then_some(outliers);
            let parts = SqueezeLlmParts { bits, qweight: &weights, lookup_table: &table, outliers };
            let w = SqueezeLlmRef::new(parts, outputs, inputs).map_err(|e| e.to_string())?;
            // Four sums of a block of 512 inputs, added up, then blocks and outliers one by one.
            check(w, truth, inputs.min(512) / 4 + 3 + inputs / 512 + most)
                .map_err(|e| format!("{bits} bits, {e}"))?;
        }
    }
    Ok(())
}

/// `dequant_squeezellm`: tables and outliers of any numbers.
pub fn dequant_squeezellm<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::ULP;
    let mut source = Source::new(31);
    each(
        &mut source,
        |s| s.pattern::<f32>(),
        |w, truth, _| {
            let what = format!("{}x{}", w.outputs(), w.inputs());
            check_decode::<E>(row.level, &truth, &LAYOUT, &what, &mut report, &|k, range, y| {
                k.dequant_squeezellm(w.output_range(range.start, range.len())?, y)
            })
        },
    )?;
    Ok(report)
}

/// `qgemv_squeezellm`: whole numbers exactly, positive ones within the bound: with these, terms of the table and
/// outliers do not cancel.
pub fn qgemv_squeezellm<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::BOUND;
    let mut source = Source::new(32);
    let mut xs = Source::new(33);
    each(
        &mut source,
        |s| s.normal().abs(),
        |w, truth, steps| {
            let x = xs.normals::<E>(w.inputs());
            check_product::<E>(row.level, &truth, &LAYOUT, (&x, steps), &mut report, &|k, range, x, y| {
                k.qgemv_squeezellm(w.output_range(range.start, range.len())?, x, y)
            })
        },
    )?;
    each(
        &mut source,
        |s| s.below(9) as f32 - 4.0,
        |w, truth, _| {
            let x = xs.whole::<E>(w.inputs(), 3);
            check_product::<E>(row.level, &truth, &LAYOUT, (&x, 0), &mut report, &|k, range, x, y| {
                k.qgemv_squeezellm(w.output_range(range.start, range.len())?, x, y)
            })
        },
    )?;
    Ok(report)
}
