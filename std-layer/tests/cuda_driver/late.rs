//! Work runs later than it is asked for: what it needs stays until then.

use super::*;

/// Work runs when something waits for it: this is what the other tests rely on to find errors.
#[test]
fn work_is_late() {
    let fake = Fake::new(&[]);
    let context = context(&fake);
    let (one, two) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let ops = Ops::new(&context).unwrap();
    let x = Buffer::from_slice(&one, &[1.0f32, -2.0]).unwrap();
    let mut y = Buffer::from_slice(&one, &[7.0f32, 8.0]).unwrap();
    ops.relu(&one, &x, &mut y).unwrap();
    assert_eq!(y.to_vec(&two).unwrap(), [7.0, 8.0], "nothing orders the streams");
    assert!(!fake.controls.launched("relu_f32"));
    // An event does.
    let event = Event::new(&context).unwrap();
    assert!(event.reached().unwrap());
    event.record(&one).unwrap();
    assert!(!event.reached().unwrap());
    two.wait_for(&event).unwrap();
    assert_eq!(y.to_vec(&two).unwrap(), [1.0, 0.0]);
    assert!(event.reached().unwrap() && fake.controls.launched("relu_f32"));
    // So does whatever waits for everything.
    ops.vec_scale(&one, 3.0, &x, &mut y).unwrap();
    drop(one);
    context.wait().unwrap();
    assert_eq!(y.to_vec(&two).unwrap(), [3.0, -6.0]);
    fake.controls.set("at_once", 1);
    ops.relu(&two, &x, &mut y).unwrap();
    assert!(fake.controls.launched("relu_f32"));
}

/// Kernels stay loaded as long as queued work uses them, and no longer.
#[test]
fn queued_work_outlives_the_operators() {
    let fake = Fake::new(&[]);
    let context = context(&fake);
    let stream = Stream::new(&context).unwrap();
    let x = Buffer::from_slice(&stream, &[1.0f32, -2.0]).unwrap();
    let mut y = Buffer::new(&context, 2).unwrap();
    let relu = |stream: &Stream, y: &mut Buffer<f32>| Ops::new(&context).unwrap().relu(stream, &x, y);
    relu(&stream, &mut y).unwrap();
    relu(&stream, &mut y).unwrap();
    assert_eq!(fake.controls.modules(), 2);
    assert_eq!(y.to_vec(&stream).unwrap(), [1.0, 0.0]);
    assert_eq!(fake.controls.modules(), 0);
    // A wait that fails has not shown that they are not needed.
    relu(&stream, &mut y).unwrap();
    fake.controls.set("wait", 999);
    assert!(stream.wait().is_err());
    fake.controls.set("wait", 0);
    assert_eq!(fake.controls.modules(), 1);
    // The stream may go, too.
    y.fill_bytes(&stream, 0).unwrap();
    relu(&stream, &mut y).unwrap();
    drop(stream);
    assert_eq!(fake.controls.modules(), 0);
    assert_eq!(y.to_vec(&Stream::new(&context).unwrap()).unwrap(), [1.0, 0.0]);
}

#[test]
fn recordings_outlive_the_operators() {
    let fake = Fake::new(&[]);
    let context = context(&fake);
    let (stream, side) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let x = Buffer::from_slice(&stream, &[1.0f32, -2.0]).unwrap();
    let mut y = Buffer::new(&context, 2).unwrap();
    let mut z = Buffer::new(&context, 2).unwrap();
    let ops = Ops::new(&context).unwrap();
    ops.load().unwrap();
    let all = fake.controls.modules();
    let (fork, join) = (Event::new(&context).unwrap(), Event::new(&context).unwrap());
    let graph = stream.capture(|| {
        // A second stream takes part, with kernels of another file.
        fork.record(&stream)?;
        side.wait_for(&fork)?;
        ops.relu(&stream, &x, &mut y)?;
        ops.softmax(&side, 2, Softmax { scale: 1.0, valid: None }, &x, &mut z)?;
        join.record(&side)?;
        stream.wait_for(&join)
    });
    let mut graph = graph.unwrap();
    drop((ops, side, fork, join));
    assert_eq!(fake.controls.modules(), 2, "of {all}");
    // SAFETY: the buffers exist.
    unsafe { graph.launch(&stream) }.unwrap();
    drop(graph);
    assert_eq!(y.to_vec(&stream).unwrap(), [1.0, 0.0]);
    assert!((z.to_vec(&stream).unwrap()[0] - 0.952_574).abs() < 1e-6);
    assert_eq!(fake.controls.modules(), 0);
}

/// What is dropped in a recording is not lost, does not end it, and exists as long as its work can be started.
#[test]
fn drops_in_a_recording() {
    let fake = Fake::new(&[]);
    let context = context(&fake);
    let (ops, stream) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
    ops.load().unwrap();
    let mut y = Buffer::from_slice(&stream, &[0.0f32; 2]).unwrap();
    let dropped = || {
        let other = Stream::new(&context).unwrap();
        let x = Buffer::from_slice(&stream, &[1.0f32, -2.0]).unwrap();
        let mut z = Buffer::<f32>::new(&context, 2).unwrap();
        let more = Ops::new(&context).unwrap();
        more.relu(&other, &x, &mut z).unwrap();
        (x, z, PinnedBuffer::<u8>::zeroed(&context, 100).unwrap(), Event::new(&context).unwrap(), more, other)
    };
    let everything = dropped();
    let (free, _) = context.memory().unwrap();
    let modules = fake.controls.modules();
    let graph = stream.capture(|| {
        ops.relu(&stream, &everything.0, &mut y)?;
        drop(everything);
        Ok(())
    });
    let mut graph = graph.unwrap();
    assert_eq!((fake.controls.allocations(), context.memory().unwrap().0), (3, free));
    for _ in 0..2 {
        y.fill_bytes(&stream, 0).unwrap();
        // SAFETY: `y` exists, and what was dropped as long as the graph.
        unsafe { graph.launch(&stream) }.unwrap();
        assert_eq!(y.to_vec(&stream).unwrap(), [1.0, 0.0]);
    }
    drop(graph);
    assert_eq!((fake.controls.allocations(), fake.controls.modules()), (1, modules - 1));
    assert_eq!(context.memory().unwrap().0, free + 2 * 16);

    // Also if the recording fails, or panics.
    let everything = dropped();
    let error = stream.capture(|| {
        drop(everything);
        Buffer::<f32>::new(&context, 2).map(|_| ())
    });
    assert_eq!(code(&error.unwrap_err()).0, 900);
    assert_eq!(fake.controls.allocations(), 1);
    let everything = dropped();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = stream.capture(|| {
            let _everything = everything;
            panic!("of its own")
        });
    }));
    assert!(panic.is_err());
    assert_eq!((fake.controls.allocations(), fake.controls.modules()), (1, modules - 1));

    // An operation that a recording cannot have ends it, even if nobody looks at its error.
    let ignored = stream.capture(|| {
        let _ = Buffer::<f32>::new(&context, 2);
        Ok(())
    });
    assert_eq!(code(&ignored.unwrap_err()).0, 901);
    drop(y);
    assert_eq!(fake.controls.allocations(), 0);
}
