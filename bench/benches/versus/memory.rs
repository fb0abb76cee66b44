//! Memory as it is really allocated: the tree for what it holds, and reading for what it keeps.

use crate::tree::{Index, Ours, Tries};
use rolter_bench::bodies;
use rolter_bench::counting::count;
use rolter_bench::prompts::sharing_a_head;
use rolter_bench::verdict::{Amount, Comparison};
use rolter_core::prompt::{MAX_TEXT_BYTES, Prompt};
use std::hint::black_box;

pub(crate) fn compare() -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (count, bytes) in [(256, 8 << 10), (8_192, 128)] {
        comparisons.extend(tree(count, bytes));
    }
    comparisons.push(reading());
    comparisons
}

/// The same prompts for the same targets, in the tree and in a byte trie a target.
fn tree(prompts: usize, bytes: usize) -> [Comparison; 3] {
    let size = format!("memory, {prompts} prompts of {bytes} B");
    let prompts = sharing_a_head(prompts, bytes);
    let (ours, allocated) = count(|| Ours::filled(&prompts));
    let (_, tries) = count(|| Tries::filled(&prompts));
    let usage = ours.0.usage();
    let against = |what: &str, theirs, at_most| Comparison {
        what: format!("{size}, against {what}"),
        ours: Some(Amount::bytes(allocated.left)),
        theirs: Some(theirs),
        at_most,
    };
    [
        against("tries", Amount::bytes(tries.left), Some(1.0 / 20.0)),
        against("distinct text", Amount::bytes(usage.text), None),
        against("its estimate", Amount::bytes(usage.memory), Some(1.0)),
    ]
}

/// A body as large as it may be is read into bounded memory.
fn reading() -> Comparison {
    let body = bodies::with_message_of(4 << 20);
    let read = || Prompt::read(b"/v1/chat/completions", black_box(body.as_bytes()));
    let (prompt, allocated) = count(read);
    assert_eq!(prompt.text.len(), MAX_TEXT_BYTES);
    Comparison {
        what: "peak memory, reading 4 MiB, against the text kept".into(),
        ours: Some(Amount::bytes(allocated.peak)),
        theirs: Some(Amount::bytes(MAX_TEXT_BYTES)),
        at_most: Some(1.1),
    }
}
