//! The images of filter and sidecar as `envoy/image/layout.py` writes them, read by other means.

use e2e::oci::{Entry, Image, archived, below, read};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const CERTIFICATES: &str = "certificates";

/// A folder with what goes into images, and the images that are written there.
struct Workshop(TempDir);

impl Workshop {
    fn new() -> Self {
        let workshop = Self(tempfile::tempdir().unwrap());
        let context = workshop.path("context");
        fs::create_dir(&context).unwrap();
        fs::copy(fleet::module().unwrap(), context.join("plugin.wasm")).unwrap();
        // It matters to nobody here what it does; `shipped` runs the real one.
        fs::write(context.join("rolter-sidecar"), "a program").unwrap();
        fs::write(context.join("ca-certificates.crt"), CERTIFICATES).unwrap();
        fs::write(context.join("LICENSE"), "a licence").unwrap();
        fs::write(context.join("third-party-sidecar.txt"), "notices").unwrap();
        workshop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes an image of this Containerfile, under this umask.
    fn run(&self, containerfile: &Path, output: &str, umask: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy/image/layout.py");
        let mut command = Command::new("sh");
        command.args(["-c", r#"umask "$0" && exec python3 -B "$@""#, umask]);
        command
            .arg(script)
            .arg("--containerfile")
            .arg(containerfile);
        command.arg("--context").arg(self.path("context"));
        command.arg("--output").arg(self.path(output));
        command.args(["--name", "registry.test/rolter", "--tag", "1.2.3"]);
        command.args(["--created", "86400", "--build-arg", "VERSION=1.2.3"]);
        command.args(["--build-arg", "LICENSES=MIT AND Zlib"]);
        command.output().unwrap()
    }

    fn image(&self, name: &str) -> Image {
        let output = self.run(&containerfile(name), name, "022");
        assert!(output.status.success(), "{output:?}");
        let image = read(&self.path(name));
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.trim(), image.digest);
        image
    }
}

fn containerfile(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../envoy/image/{name}.Containerfile"))
}

/// Paths and modes of a layer.
fn shown(layer: &[Entry]) -> Vec<(&str, u32)> {
    layer
        .iter()
        .map(|entry| (&*entry.path, entry.mode))
        .collect()
}

#[test]
fn the_image_of_the_filter_is_one_layer_with_one_file() {
    let image = Workshop::new().image("filter");
    assert_eq!(image.layers.len(), 1);
    assert_eq!(shown(&image.layers[0]), [("plugin.wasm", 0o644)]);
    let module = fs::read(fleet::module().unwrap()).unwrap();
    assert!(image.layers[0][0].content == module, "another module");
    // A kind of machine that nobody refuses, and nothing to run.
    assert_eq!(image.config["os"], "linux");
    assert_eq!(image.config["architecture"], "amd64");
    assert!(image.config["config"].get("Entrypoint").is_none());
}

#[test]
fn the_image_of_the_sidecar_is_its_program_certificates_and_notices_for_who_is_not_root() {
    let image = Workshop::new().image("sidecar");
    let layers: Vec<_> = image.layers.iter().map(|layer| shown(layer)).collect();
    assert_eq!(
        layers,
        [
            vec![
                ("etc/", 0o755),
                ("etc/ssl/", 0o755),
                ("etc/ssl/certs/", 0o755),
                ("etc/ssl/certs/ca-certificates.crt", 0o644)
            ],
            vec![("licenses/", 0o755), ("licenses/LICENSE", 0o644)],
            vec![("licenses/", 0o755), ("licenses/third-party.txt", 0o644)],
            vec![("rolter-sidecar", 0o755)],
        ]
    );
    assert_eq!(image.layers[0][3].content, CERTIFICATES.as_bytes());
    let config = &image.config["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["ExposedPorts"], json!({"9464/tcp": {}}));
    assert_eq!(config["Entrypoint"], json!(["/rolter-sidecar"]));
}

#[test]
fn an_image_says_what_it_is_and_whose_its_files_are() {
    let workshop = Workshop::new();
    for name in ["filter", "sidecar"] {
        let image = workshop.image(name);
        assert!(
            image
                .entries()
                .all(|entry| entry.owner == (0, 0) && entry.changed == 0)
        );
        assert_eq!(
            image.named,
            json!({
                "io.containerd.image.name": "registry.test/rolter:1.2.3",
                "org.opencontainers.image.ref.name": "1.2.3",
            })
        );
        let labels = image.config["config"]["Labels"].as_object().unwrap();
        let annotations = image.manifest["annotations"].as_object().unwrap();
        for (label, value) in labels {
            assert_eq!(annotations[label], *value);
        }
        assert_eq!(
            labels["org.opencontainers.image.title"],
            format!("rolter-{name}")
        );
        assert_eq!(labels["org.opencontainers.image.version"], "1.2.3");
        assert_eq!(labels["org.opencontainers.image.licenses"], "MIT AND Zlib");
        // None was given.
        assert!(!labels.contains_key("org.opencontainers.image.revision"));
        let created = "1970-01-02T00:00:00Z";
        assert_eq!(annotations["org.opencontainers.image.created"], created);
        assert_eq!(image.config["created"], created);
    }
}

#[test]
fn the_same_input_yields_the_same_bytes() {
    let workshop = Workshop::new();
    workshop.image("sidecar");
    let tar = |name: &str| fs::read(workshop.path(&format!("{name}.tar"))).unwrap();
    let first = tar("sidecar");
    // Another file with the same content, by somebody else.
    let binary = workshop.path("context/rolter-sidecar");
    let content = fs::read(&binary).unwrap();
    fs::remove_file(&binary).unwrap();
    fs::write(&binary, content).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o600)).unwrap();
    let output = workshop.run(&containerfile("sidecar"), "again", "077");
    assert!(output.status.success(), "{output:?}");
    assert!(tar("again") == first, "another archive");
    // An image that was there leaves nothing behind.
    fs::write(binary, "other").unwrap();
    assert!(workshop.image("sidecar") != read(&workshop.path("again")));
}

#[test]
fn the_archive_is_the_directory() {
    let workshop = Workshop::new();
    workshop.image("sidecar");
    let files = below(&workshop.path("sidecar"));
    assert!(archived(&workshop.path("sidecar.tar")) == files);
    assert_eq!(files.len(), 2 + 6);
}

#[test]
fn what_an_image_cannot_be_made_of_is_named() {
    let workshop = Workshop::new();
    for (said, complaint) in [
        ("", "write FROM scratch first"),
        ("FROM debian\n", "line 1: write FROM scratch first"),
        ("FROM scratch\nRUN id\n", "line 2: RUN is not known here"),
        ("FROM scratch\n", "there is no ARG LICENSES, VERSION"),
        (
            "# ignored\n\nFROM scratch\nCOPY a /a",
            "line 4: write COPY --chmod=0644 FILE /PATH",
        ),
        (
            "FROM scratch\nCOPY --chmod=0644 a a\n",
            "line 2: write COPY --chmod=0644 FILE /PATH",
        ),
        (
            "FROM scratch\nENTRYPOINT /a\n",
            r#"line 2: write ENTRYPOINT ["/PATH"]"#,
        ),
        ("FROM scratch\nEXPOSE http\n", "line 2: write EXPOSE PORT"),
        (
            "FROM scratch\nLABEL a=1 \\\n  b=${NONE}\n",
            "line 2: there is no ARG NONE",
        ),
        (
            "FROM scratch\nARG VERSION\nARG LICENSES\nCOPY --chmod=0644 none /a\n",
            "No such file",
        ),
    ] {
        let containerfile = workshop.path("Containerfile");
        fs::write(&containerfile, said).unwrap();
        let output = workshop.run(&containerfile, "refused", "022");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{said}");
        assert!(told.contains(complaint), "{said}: {told}");
        assert!(!told.contains("Traceback"), "{told}");
        assert!(!workshop.path("refused").exists(), "{said}");
    }
}
