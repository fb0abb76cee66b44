//! The host's calls that state is shared through.

/// A version that no stored value has: versions are counted up from one, for each write in the
/// life of the process. Expecting it writes a value only where there is none.
pub const NO_VERSION: u32 = u32::MAX;

/// A value of the shared data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The value.
    pub value: Vec<u8>,
    /// Its version, which every write changes.
    pub version: u32,
}

/// What all VMs of one Envoy have in common.
///
/// A call cannot fail in a way that a caller could mend: what the host refuses reads as absent or
/// as zero, and is not written.
pub trait Host {
    /// A gauge by its handle, which is worth something in one VM alone.
    type Gauge: Copy;

    /// The name of the VMs that have the shared data in common. Gauges are common to the whole
    /// process, so those that go by slots, which are shared data, bear this name.
    fn vm(&self) -> String;

    /// A value of the shared data.
    fn get(&self, key: &str) -> Option<Stored>;

    /// Writes a value; with a version expected, only where the value has that one or is absent.
    /// Whether it was written. Nothing can be deleted.
    fn set(&self, key: &str, value: &[u8], expected: Option<u32>) -> bool;

    /// The gauge of this name and these labels, made with zero where there is none.
    fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> Self::Gauge;

    /// Likewise one that changes with each request. Where requests are many, what a VM writes to it may
    /// reach the others a moment later, all at once; what the VM itself reads has it in it already.
    fn tally(&self, name: &str, labels: &[(&str, &str)]) -> Self::Gauge {
        self.gauge(name, labels)
    }

    /// What a gauge reads. Below zero it wraps.
    fn read(&self, gauge: Self::Gauge) -> u64;

    /// Adds to a gauge, in one step.
    fn add(&self, gauge: Self::Gauge, amount: i64);

    /// Makes a gauge read this.
    fn put(&self, gauge: Self::Gauge, value: u64);
}
