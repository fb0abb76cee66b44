//! The affinity trees of this VM, and the memory that they have together.
//!
//! A worker has one VM for all its plugins of the same module and `vm_id`: a new configuration
//! gets no new one, and requests under an old configuration keep that alive. So a route that is
//! still there, with the same targets, keeps its tree, and the bound on memory is for the VM.

use crate::metrics::{Counter, Share};
use rolter_core::affinity::{Limits, Tree};
use rolter_core::target::TargetId;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// What all trees may take together, in bytes: half of what a VM may use.
const MEMORY: usize = 512 << 20;

thread_local! {
    static TREES: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

/// A tree that some plugin holds, or held until a moment ago.
struct Known {
    route: String,
    targets: Vec<String>,
    tree: Weak<RefCell<Tree>>,
    /// This worker's part in the numbers of the route.
    nodes: Share,
    prompts: Share,
    text: Share,
    memory: Share,
    /// Distinct bytes of prompts, by target.
    held: Vec<Share>,
    evictions: Counter,
    /// How many of the evictions have been counted.
    evicted: Cell<u64>,
}

/// The tree of a route: the one that it has already, or a new one.
pub(crate) fn tree(route: &str, targets: &[&str], max_nodes: usize) -> Rc<RefCell<Tree>> {
    let limits = Limits {
        max_nodes,
        max_memory: MEMORY,
    };
    let tree = TREES.with_borrow_mut(|trees| {
        let same = |known: &&Known| known.route == route && known.targets == targets;
        if let Some(tree) = trees
            .iter()
            .find(same)
            .and_then(|known| known.tree.upgrade())
        {
            return tree;
        }
        let tree = Rc::new(RefCell::new(Tree::new(targets.len(), limits)));
        trees.push(Known::new(route, targets, &tree));
        tree
    });
    tree.borrow_mut().set_limits(limits);
    share_memory();
    tree
}

/// Brings Envoy's stats up to date with what the trees hold, and the limits with their number.
pub(crate) fn report() {
    share_memory();
    TREES.with_borrow(|trees| trees.iter().for_each(Known::report));
}

/// Gives each tree its part of the memory, after trees that nobody holds any more are gone.
fn share_memory() {
    TREES.with_borrow_mut(|trees| {
        trees.retain(|known| known.tree.strong_count() > 0);
        let max_memory = MEMORY / trees.len().max(1);
        for tree in trees.iter().filter_map(|known| known.tree.upgrade()) {
            let mut tree = tree.borrow_mut();
            let limits = Limits {
                max_memory,
                ..tree.limits()
            };
            tree.set_limits(limits);
        }
    });
}

impl Known {
    fn new(route: &str, targets: &[&str], tree: &Rc<RefCell<Tree>>) -> Self {
        let labels = [("route", route)];
        let held = |target: &&str| {
            Share::define(
                "rolter_tree_held_bytes",
                &[("route", route), ("target", target)],
            )
        };
        Self {
            route: route.to_owned(),
            targets: targets.iter().map(|&target| target.to_owned()).collect(),
            tree: Rc::downgrade(tree),
            nodes: Share::define("rolter_tree_nodes", &labels),
            prompts: Share::define("rolter_tree_prompts", &labels),
            text: Share::define("rolter_tree_text_bytes", &labels),
            memory: Share::define("rolter_tree_memory_bytes", &labels),
            held: targets.iter().map(held).collect(),
            evictions: Counter::define("rolter_tree_evictions", &labels),
            evicted: Cell::new(0),
        }
    }

    fn report(&self) {
        let Some(tree) = self.tree.upgrade() else {
            return;
        };
        let tree = tree.borrow();
        let usage = tree.usage();
        self.nodes.set(usage.nodes);
        self.prompts.set(usage.prompts);
        self.text.set(usage.text);
        self.memory.set(usage.memory);
        let counted = self.evicted.replace(usage.evictions);
        self.evictions.add(usage.evictions - counted);
        for (target, held) in (0..).map(TargetId).zip(&self.held) {
            held.set(tree.held(target));
        }
    }
}
