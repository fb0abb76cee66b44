//! What `make release` has made: run as it ships, and checked by other means than it was made by.

use e2e::oci::{self, Image};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long what must happen may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The user of the sidecar's image.
const USER: u32 = 65532;

const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

const MODULE_TARGET: &str = "wasm32-wasip1";
const SIDECAR_TARGET: &str = "x86_64-unknown-linux-musl";

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the release.
fn artefact(name: &str) -> PathBuf {
    let path = project().join(format!("target/release-{VERSION}/{name}"));
    assert!(path.exists(), "run make release: {}", path.display());
    path
}

fn filter_module() -> Vec<u8> {
    fs::read(artefact(&format!("rolter-filter-{VERSION}.wasm"))).unwrap()
}

fn sidecar_program() -> PathBuf {
    artefact(&format!("rolter-sidecar-{VERSION}-linux-amd64"))
}

/// The image in an archive of the release.
fn image(name: &str) -> Image {
    let unpacked = tempfile::tempdir().unwrap();
    let mut archive = tar::Archive::new(fs::File::open(artefact(name)).unwrap());
    archive.unpack(&unpacked).unwrap();
    oci::read(unpacked.path())
}

fn filter_image() -> Image {
    image(&format!("rolter-filter-{VERSION}.oci.tar"))
}

fn sidecar_image() -> Image {
    image(&format!("rolter-sidecar-{VERSION}-linux-amd64.oci.tar"))
}

fn content<'a>(image: &'a Image, path: &str) -> &'a [u8] {
    let mut entries = image.entries();
    &entries.find(|entry| entry.path == path).unwrap().content
}

#[test]
fn the_checksums_are_those_of_all_files() {
    let sums = artefact("SHA256SUMS");
    let directory = sums.parent().unwrap();
    let mut sha256sum = Command::new("sha256sum");
    sha256sum.args(["--check", "--strict", "SHA256SUMS"]);
    let output = sha256sum.current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let listed = fs::read_to_string(&sums).unwrap();
    let listed = listed.lines().map(|line| line[66..].to_owned());
    let files = fs::read_dir(directory).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let files = files.filter(|name| name != "SHA256SUMS");
    assert_eq!(
        listed.collect::<BTreeSet<_>>(),
        files.collect::<BTreeSet<_>>()
    );
}

#[test]
fn the_images_have_the_artefacts_and_the_version() {
    let (filter, sidecar) = (filter_image(), sidecar_image());
    assert!(content(&filter, "plugin.wasm") == filter_module());
    assert!(content(&sidecar, "rolter-sidecar") == fs::read(sidecar_program()).unwrap());
    for (image, name) in [(filter, "rolter-filter"), (sidecar, "rolter-sidecar")] {
        let labels = &image.config["config"]["Labels"];
        assert_eq!(labels["org.opencontainers.image.version"], VERSION);
        assert_eq!(labels["org.opencontainers.image.title"], name);
        let named = &image.named["io.containerd.image.name"];
        let named = named.as_str().unwrap();
        assert!(named.ends_with(&format!("/{name}:{VERSION}")), "{named}");
        let digests = fs::read_to_string(artefact("images.txt")).unwrap();
        let line = format!("{name}:{VERSION}  {}", image.digest);
        assert!(digests.lines().any(|found| found == line), "{digests}");
        // The directory beside is the same image.
        let layout = project().join("target/image").join(name);
        assert!(oci::read(&layout) == image, "{name}");
    }
}

#[test]
fn the_chart_is_packed_whole() {
    let source = project().join("envoy/chart");
    if !source.exists() {
        return;
    }
    let unpacked = tempfile::tempdir().unwrap();
    let packed = fs::File::open(artefact(&format!("rolter-{VERSION}.tgz"))).unwrap();
    let packed = flate2::read::GzDecoder::new(packed);
    tar::Archive::new(packed).unpack(&unpacked).unwrap();
    let files = oci::below(&unpacked.path().join("rolter"));
    assert!(files == oci::below(&source));
}

#[test]
fn the_sidecar_needs_nothing_of_the_system() {
    let asked = Command::new("readelf")
        .args(["--wide", "--program-headers", "--dynamic"])
        .arg(sidecar_program())
        .output()
        .unwrap();
    let told = String::from_utf8(asked.stdout).unwrap();
    assert!(told.contains("LOAD"), "{told}");
    for needed in ["INTERP", "NEEDED"] {
        assert!(!told.contains(needed), "{told}");
    }
}

/// Something that runs until this ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The sidecar's image, unpacked, with a configuration and what a pod has beside.
struct Container {
    root: TempDir,
    entrypoint: String,
    port: u16,
}

impl Container {
    /// With these settings in its configuration.
    fn new(settings: &Value) -> Self {
        let image = sidecar_image();
        let root = tempfile::tempdir().unwrap();
        image.unpack(root.path());
        let path = |name: &str| root.path().join(name);
        for directory in ["etc/rolter", "run/rolter"] {
            fs::create_dir_all(path(directory)).unwrap();
        }
        // As Kubernetes mounts it.
        fs::write(path("etc/hosts"), "127.0.0.1 localhost engine.test\n").unwrap();
        if is_root() {
            chown(root.path(), Some(USER), Some(USER)).unwrap();
            chown(path("run/rolter"), Some(USER), Some(USER)).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = port.local_addr().unwrap().port();
        let mut config = json!({
            "sidecar": {"cluster": "rolter_sidecar", "metrics_listen": format!("127.0.0.1:{port}")},
            "providers": [{"name": "a", "cluster": "a"}],
            "routes": [{"name": "chat", "targets": ["a"]}],
        });
        for (name, value) in settings.as_object().unwrap() {
            config[name] = value.clone();
        }
        fs::write(path("etc/rolter/rolter.json"), config.to_string()).unwrap();
        let entrypoint = &image.config["config"]["Entrypoint"];
        assert_eq!(image.config["config"]["User"], format!("{USER}:{USER}"));
        let entrypoint = entrypoint[0].as_str().unwrap().to_owned();
        Self {
            root,
            entrypoint,
            port,
        }
    }

    /// The image's program, with nothing but the image for a file system, and no rights.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = if is_root() {
            let mut command = Command::new("chroot");
            command.arg(format!("--userspec={USER}:{USER}"));
            command.arg(self.root.path());
            command
        } else {
            let mut command = Command::new("unshare");
            command.arg("--map-current-user").arg("--root");
            command.arg(self.root.path());
            command
        };
        command.arg(&self.entrypoint).args(arguments);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn run(&self, environment: &[(&str, &str)]) -> Running {
        let mut command = self.command(&["run", "--config", "/etc/rolter/rolter.json"]);
        command.envs(environment.iter().copied());
        let log = fs::File::create(self.root.path().join("log")).unwrap();
        Running(command.stderr(log).stdin(Stdio::null()).spawn().unwrap())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.root.path().join("log")).unwrap()
    }

    /// What it answers, if it does.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: sidecar\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Waits until this is something.
fn eventually<T>(container: &Container, mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "{}", container.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_sidecar_runs_in_its_image_with_no_rights() {
    let container = Container::new(&json!({}));
    let version = container.output(&["--version"]);
    let told = String::from_utf8(version.stdout).unwrap();
    assert_eq!(
        told,
        format!("rolter-sidecar {VERSION}\n"),
        "{:?}",
        version.stderr
    );
    let checked = container.output(&["check", "--config", "/etc/rolter/rolter.json"]);
    assert!(checked.status.success(), "{checked:?}");
    let mut running = container.run(&[]);
    let healthy = eventually(&container, || container.get("/healthz"));
    assert!(healthy.starts_with("HTTP/1.0 200"), "{healthy}");
    assert!(
        container
            .root
            .path()
            .join("run/rolter/sidecar.sock")
            .exists()
    );
    if is_root() {
        let status = fs::metadata(format!("/proc/{}", running.0.id())).unwrap();
        assert_eq!((status.uid(), status.gid()), (USER, USER));
    }
    // As Kubernetes ends it.
    let id = running.0.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    let ended = eventually(&container, || running.0.try_wait().unwrap());
    assert!(ended.success(), "{}", container.log());
}

/// A server of this name that speaks TLS; it gives what each connection says first.
fn behind_tls(key: &rcgen::CertifiedKey<rcgen::KeyPair>) -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let secret = PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], secret)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let said: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let heard = Arc::clone(&said);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, heard) = (acceptor.clone(), Arc::clone(&heard));
            tokio::spawn(async move {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let mut first = vec![0; 64];
                    if let Ok(read) = stream.read(&mut first).await {
                        first.truncate(read);
                        heard.lock().unwrap().push(first);
                    }
                }
            });
        }
    });
    (port, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn from_within_its_image_the_sidecar_reaches_who_proves_who_it_is() {
    let key = rcgen::generate_simple_self_signed(["engine.test".to_owned()]).unwrap();
    let own = "etc/rolter/ca.crt";
    // An authority of one's own, in place of those in the image, or beside them.
    for (place, environment) in [
        (BUNDLE, vec![]),
        (own, vec![("SSL_CERT_FILE", "/etc/rolter/ca.crt")]),
    ] {
        let (port, said) = behind_tls(&key);
        let container = Container::new(&json!({
            "cache": {"redis": format!("rediss://engine.test:{port}")},
            "providers": [
                {"name": "a", "cluster": "a", "api_base": format!("https://engine.test:{port}")},
            ],
            "routes": [{"name": "chat", "targets": ["a"], "cache": {}}],
        }));
        fs::write(container.root.path().join(place), key.cert.pem()).unwrap();
        let _running = container.run(&environment);
        // HTTP of the engine's client, and Redis.
        for protocol in ["GET /", "*"] {
            eventually(&container, || {
                let said = said.lock().unwrap();
                let mut said = said.iter();
                said.find(|first| first.starts_with(protocol.as_bytes()))
                    .map(drop)
            });
        }
    }
}

#[test]
fn the_image_of_the_sidecar_has_the_certificates_of_public_authorities() {
    let image = sidecar_image();
    let bundle = String::from_utf8(content(&image, BUNDLE).to_vec()).unwrap();
    let certificates = bundle.matches("-----BEGIN CERTIFICATE-----").count();
    assert!(certificates > 100, "{certificates}");
}

/// A component of a document, as `name version`.
fn shown(component: &Value) -> String {
    let text = |key: &str| component[key].as_str().unwrap().to_owned();
    format!("{} {}", text("name"), text("version"))
}

/// The crates that a package depends on for a target, as cargo explains it, as `name version`.
fn tree(package: &str, target: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(project())
        .args([
            "tree",
            "--locked",
            "--offline",
            "--prefix=none",
            "--format={p}",
        ])
        .args(["--edges=normal,no-proc-macro", "--package", package])
        .args(["--target", target])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    let crates = told.lines().map(|line| {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let version = words.next().unwrap().trim_start_matches('v');
        format!("{name} {version}")
    });
    crates
        .filter(|shown| !shown.starts_with(&format!("{package} ")))
        .collect()
}

#[test]
fn what_is_in_the_artefacts_is_listed_exactly() {
    let lock = fs::read_to_string(project().join("Cargo.lock")).unwrap();
    for (package, file, target, listed, unlisted) in [
        (
            "rolter-filter",
            format!("rolter-filter-{VERSION}.wasm"),
            MODULE_TARGET,
            ["proxy-wasm", "prost", "rolter-core"],
            ["tokio", "ring", "serde_derive", "rolter-sidecar"],
        ),
        (
            "rolter-sidecar",
            format!("rolter-sidecar-{VERSION}-linux-amd64"),
            SIDECAR_TARGET,
            ["tokio", "ring", "rolter-core"],
            // The filter's, a build's, a test's, and another system's.
            ["proxy-wasm", "cc", "engine-sim", "windows-sys"],
        ),
    ] {
        let name = format!("{}.cdx.json", file.trim_end_matches(".wasm"));
        let document: Value = serde_json::from_slice(&fs::read(artefact(&name)).unwrap()).unwrap();
        assert_eq!(document["bomFormat"], "CycloneDX");
        let itself = &document["metadata"]["component"];
        assert_eq!(shown(itself), format!("{package} {VERSION}"));
        let hash = oci::digest(&fs::read(artefact(&file)).unwrap());
        let hash = hash.trim_start_matches("sha256:");
        assert_eq!(
            itself["hashes"],
            json!([{"alg": "SHA-256", "content": hash}])
        );
        let components = document["components"].as_array().unwrap();
        for component in components {
            let name = shown(component);
            let license = &component["licenses"][0]["expression"];
            assert!(license.is_string(), "{name}");
            if name == format!("rolter-core {VERSION}") {
                // Ours. The registry has a stranger of this name.
                for of_registry in ["hashes", "purl"] {
                    assert!(component.get(of_registry).is_none(), "{component}");
                }
                continue;
            }
            let purl = component["purl"].as_str().unwrap();
            let known = purl.replace("%2B", "+").replace('@', " ");
            assert_eq!(known, format!("pkg:cargo/{name}"));
            let hash = component["hashes"][0]["content"].as_str().unwrap();
            let hash = format!("checksum = \"{hash}\"");
            let mut entries = lock.split("[[package]]");
            let entry = entries.find(|entry| entry.contains(&hash)).unwrap();
            for key in ["name", "version"] {
                let line = format!("\n{key} = {}\n", component[key]);
                assert!(entry.contains(&line), "{component}: {entry}");
            }
        }
        assert!(itself.get("purl").is_none(), "{itself}");
        let names = || {
            components
                .iter()
                .map(|component| component["name"].as_str().unwrap())
        };
        for wanted in listed {
            assert!(names().any(|name| name == wanted), "{wanted}");
        }
        for unwanted in unlisted {
            assert!(names().all(|name| name != unwanted), "{unwanted}");
        }
        let components: BTreeSet<_> = components.iter().map(shown).collect();
        assert_eq!(components, tree(package, target), "{package}");
    }
}

#[test]
fn what_others_have_made_of_an_artefact_comes_with_its_licences_and_notices() {
    let part = |name: &str| {
        let read = |kind: &str| fs::read_to_string(artefact(&format!("{name}.{kind}"))).unwrap();
        let document: Value = serde_json::from_str(&read("cdx.json")).unwrap();
        (read("third-party.txt"), document)
    };
    let (of_filter, in_filter) = part(&format!("rolter-filter-{VERSION}"));
    let (of_sidecar, in_sidecar) = part(&format!("rolter-sidecar-{VERSION}-linux-amd64"));
    for (notices, document) in [(&of_filter, in_filter), (&of_sidecar, in_sidecar)] {
        for component in document["components"].as_array().unwrap() {
            let name = shown(component);
            let is_ours = name.starts_with("rolter-");
            let has = |start: String| notices.lines().any(|line| line.starts_with(&start));
            assert_eq!(has(format!("{name}: ")), !is_ours, "{name}");
        }
        for wanted in ["\nmusl: MIT\n", "\nRust's standard library: "] {
            assert!(notices.contains(wanted), "{wanted}");
        }
        let lines = || notices.lines().map(str::trim);
        for rule in ["=", "-"].map(|part| part.repeat(80)) {
            assert!(lines().filter(|line| *line == rule).count() > 20);
        }
        // The same text is not there again and again.
        let texts: Vec<_> = notices.split(&"-".repeat(80)).skip(1).collect();
        let texts = texts
            .iter()
            .map(|text| text.split(&"=".repeat(80)).next().unwrap());
        let words = texts.map(|text| text.split_whitespace().collect::<Vec<_>>());
        let words: Vec<_> = words.collect();
        assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len());
    }
    let (filter, sidecar) = (filter_image(), sidecar_image());
    assert!(content(&sidecar, "licenses/third-party.txt") == of_sidecar.as_bytes());
    let own = fs::read(project().join("LICENSE")).unwrap();
    assert!(content(&sidecar, "licenses/LICENSE") == own);
    for (image, wanted, unwanted) in [(filter, "MIT", "MPL-2.0"), (sidecar, "MPL-2.0", "LGPL")] {
        let labels = &image.config["config"]["Labels"];
        let licenses = labels["org.opencontainers.image.licenses"]
            .as_str()
            .unwrap();
        assert!(licenses.contains("Apache-2.0"), "{licenses}");
        assert!(licenses.contains(wanted), "{licenses}");
        assert!(!licenses.contains(unwanted), "{licenses}");
    }
}

#[test]
fn nothing_that_ships_says_where_it_was_built() {
    let project = fs::canonicalize(project()).unwrap();
    let places = [Some(project.into_os_string()), std::env::var_os("HOME")];
    for content in [filter_module(), fs::read(sidecar_program()).unwrap()] {
        for place in places.iter().flatten() {
            // A folder below it, lest `/` or `/root` alone be found in something else.
            let place = [place.as_encoded_bytes(), b"/"].concat();
            let mut found = content.windows(place.len());
            let at = found.position(|window| window == place);
            assert!(at.is_none(), "{}", String::from_utf8_lossy(&place));
        }
    }
}
