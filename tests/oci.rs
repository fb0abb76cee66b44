//! Reads an OCI image layout, and trusts nothing that it says of itself.
//!
//! Invariant: what is read is whole. Each blob has the digest and the size that it is named by, nothing
//! else is there, and the layers are those whose contents the configuration lists.

use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The only image of a layout.
#[derive(Debug, PartialEq)]
pub struct Image {
    /// The digest of its manifest.
    pub digest: String,
    /// What the layout's index says of it.
    pub named: Value,
    /// Its manifest.
    pub manifest: Value,
    /// Its configuration.
    pub config: Value,
    /// What each layer has, the lowest first.
    pub layers: Vec<Vec<Entry>>,
}

/// A file or directory of a layer.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path, without a slash before it; after it a directory has one.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// The user and group that own it.
    pub owner: (u64, u64),
    /// When it was changed, in seconds since 1970.
    pub changed: u64,
    /// What a file has.
    pub content: Vec<u8>,
}

/// The files of an archive or directory, each with its path.
pub type Files = Vec<(String, Vec<u8>)>;

/// Reads the layout in a directory.
///
/// # Panics
/// Where anything is not as it should be.
pub fn read(root: &Path) -> Image {
    let version = json(&fs::read(root.join("oci-layout")).expect("oci-layout"));
    assert_eq!(version["imageLayoutVersion"], "1.0.0");
    let index = json(&fs::read(root.join("index.json")).expect("index.json"));
    assert_eq!(index["schemaVersion"], 2);
    assert_eq!(index["mediaType"], INDEX);
    let images = index["manifests"].as_array().expect("manifests");
    assert_eq!(images.len(), 1, "{index}");
    let mut blobs = Blobs {
        root,
        read: BTreeSet::new(),
    };
    let manifest = json(&blobs.read(&images[0], MANIFEST));
    assert_eq!(manifest["schemaVersion"], 2);
    assert_eq!(manifest["mediaType"], MANIFEST);
    let config = json(&blobs.read(&manifest["config"], CONFIG));
    assert_eq!(config["rootfs"]["type"], "layers");
    let listed = config["rootfs"]["diff_ids"].as_array().expect("diff_ids");
    let described = manifest["layers"].as_array().expect("layers");
    assert_eq!(listed.len(), described.len());
    assert_eq!(
        listed.len(),
        config["history"].as_array().expect("history").len()
    );
    let layers = described.iter().zip(listed).map(|(layer, listed)| {
        let packed = blobs.read(layer, LAYER);
        assert_eq!(packed[4..8], [0; 4], "gzip has a time in it");
        let mut tar = Vec::new();
        let unpacked = GzDecoder::new(Cursor::new(packed)).read_to_end(&mut tar);
        unpacked.expect("a layer in gzip");
        assert_eq!(digest(&tar), *listed, "the layer is another");
        entries(&tar)
    });
    let layers = layers.collect();
    let kept = fs::read_dir(root.join("blobs/sha256")).expect("blobs");
    let kept = kept.map(|file| file.expect("a blob").file_name().into_string().unwrap());
    assert_eq!(
        kept.collect::<BTreeSet<_>>(),
        blobs.read,
        "blobs that nothing needs"
    );
    Image {
        digest: text(&images[0]["digest"]),
        named: images[0]["annotations"].clone(),
        manifest,
        config,
        layers,
    }
}

impl Image {
    /// The files and directories of all layers, in their order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.layers.iter().flatten()
    }

    /// Puts what the image has into a directory.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn unpack(&self, root: &Path) {
        use std::os::unix::fs::PermissionsExt;
        for entry in self.entries() {
            let path = root.join(&entry.path);
            if entry.path.ends_with('/') {
                fs::create_dir_all(&path).expect("a directory");
            } else {
                fs::write(&path, &entry.content).expect("a file");
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode)).expect("its mode");
        }
    }
}

/// The files of a tar archive, in its order.
///
/// # Panics
/// Where it is none.
pub fn archived(path: &Path) -> Files {
    let files = entries(&fs::read(path).expect("an archive")).into_iter();
    let files = files.filter(|entry| !entry.path.ends_with('/'));
    files.map(|entry| (entry.path, entry.content)).collect()
}

/// The files below a directory, by their paths.
///
/// # Panics
/// Where it cannot be read.
pub fn below(root: &Path) -> Files {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for found in fs::read_dir(root.join(&directory)).expect("a directory") {
            let found = found.expect("a file");
            let path = directory.join(found.file_name());
            if found.file_type().expect("its type").is_dir() {
                directories.push(path);
            } else {
                let name = path.to_str().expect("a name").to_owned();
                files.push((name, fs::read(found.path()).expect("a file")));
            }
        }
    }
    files.sort();
    files
}

/// `sha256:` and the digest of this.
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let digits = hash.iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", digits.collect::<String>())
}

struct Blobs<'a> {
    root: &'a Path,
    read: BTreeSet<String>,
}

impl Blobs<'_> {
    /// The blob of a descriptor.
    fn read(&mut self, descriptor: &Value, media_type: &str) -> Vec<u8> {
        assert_eq!(descriptor["mediaType"], media_type);
        let named = text(&descriptor["digest"]);
        let name = named.strip_prefix("sha256:").expect("a SHA-256").to_owned();
        let blob = fs::read(self.root.join("blobs/sha256").join(&name)).expect("a blob");
        assert_eq!(descriptor["size"], blob.len());
        assert_eq!(digest(&blob), named);
        self.read.insert(name);
        blob
    }
}

fn entries(tar: &[u8]) -> Vec<Entry> {
    let mut archive = tar::Archive::new(tar);
    let entries = archive.entries().expect("an archive").map(|entry| {
        let mut entry = entry.expect("an entry");
        let header = entry.header();
        let kind = header.entry_type();
        assert!(kind.is_file() || kind.is_dir(), "{kind:?}");
        let mode = header.mode().expect("a mode");
        let owner = (
            header.uid().expect("a user"),
            header.gid().expect("a group"),
        );
        let changed = header.mtime().expect("a time");
        let path = entry
            .path()
            .expect("a path")
            .to_str()
            .expect("UTF-8")
            .to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("a file");
        assert_eq!(kind.is_dir(), path.ends_with('/'), "{path}");
        Entry {
            path,
            mode,
            owner,
            changed,
            content,
        }
    });
    entries.collect()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}
