//! Where a filter of ours gets its module, and which filters share a VM's data. Invariant: a file that
//! is meant for another machine is not doubtful for paths that are not here.

use super::envoy::{Envoy, Plugin, problem, reaches};
use crate::document::configuration::Ours;
use crate::document::value::{at, text};
use rolter_core::config::{Config, Problem, Reach};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// How a module begins.
const MAGIC: [u8; 4] = *b"\0asm";
const V8: &str = "envoy.wasm.runtime.v8";

fn each(envoy: &Envoy<'_>, look: impl Fn(&Plugin<'_>) -> Option<Problem>) -> Vec<Problem> {
    envoy.plugins.iter().filter_map(look).collect()
}

/// The others are not in the Envoys that there are to have, but somebody may build one with them.
pub(super) fn runtime(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let runtime = text(&plugin.value["vm_config"], "runtime");
        (!runtime.is_empty() && runtime != V8).then(|| {
            let what = format!(
                "{runtime:?}, which Envoy's own builds do not have, so that they do not start; \
                 write {V8}, unless yours has it, and it loads the module"
            );
            plugin.problem("vm_config.runtime", what)
        })
    })
}

/// What Envoy can load.
pub(super) fn code(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let code = at(plugin.value, "/vm_config/code");
        let (field, what) = match (code.get("local"), code.get("remote")) {
            (None, None) => ("vm_config.code", "no module"),
            (Some(local), _) if is_empty_source(local) => {
                ("vm_config.code.local", "no module in it")
            }
            _ => return None,
        };
        let what = format!(
            "{what}, so that Envoy does not start; write local: {{ filename: \
             /etc/rolter/rolter_filter.wasm }} there"
        );
        Some(plugin.problem(field, what))
    })
}

fn is_empty_source(local: &Value) -> bool {
    let sources = [
        "filename",
        "inline_bytes",
        "inline_string",
        "environment_variable",
    ];
    let has = |source: &&str| !text(local, source).is_empty();
    !sources.iter().any(has)
}

/// Envoy refuses to fetch what it cannot recognise.
pub(super) fn sha256(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let remote = plugin.value.pointer("/vm_config/code/remote")?;
        let is_hash =
            |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (!is_hash(text(remote, "sha256"))).then(|| {
            let what = "no SHA-256, without which Envoy does not take the module; write the 64 hex \
                        digits that sha256sum prints for it";
            plugin.problem("vm_config.code.remote.sha256", what)
        })
    })
}

fn filename<'a>(plugin: &'a Plugin<'_>) -> Option<&'a Path> {
    let name = plugin
        .value
        .pointer("/vm_config/code/local/filename")?
        .as_str()?;
    Some(Path::new(name))
}

/// Where its directory is here, it should be there.
pub(super) fn file(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let name = filename(plugin)?;
        let directory = name.parent()?;
        (directory.is_dir() && !name.exists()).then(|| {
            let what = format!(
                "no {} on this machine, without which Envoy does not start; write where the module \
                 is",
                name.display()
            );
            plugin.problem("vm_config.code.local.filename", what)
        })
    })
}

/// What is there should be a module.
pub(super) fn content(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let name = filename(plugin)?;
        let mut begin = [0; MAGIC.len()];
        // A socket or a pipe would have us wait.
        let is_file = name.is_file();
        let mut file = is_file.then(|| File::open(name).ok())??;
        let is_module = file.read_exact(&mut begin).is_ok() && begin == MAGIC;
        (!is_module).then(|| {
            let what = format!(
                "{} is no wasm module, so that Envoy does not start; write where \
                 rolter_filter.wasm is",
                name.display()
            );
            plugin.problem("vm_config.code.local.filename", what)
        })
    })
}

/// Whoever has none shares with all others that have none.
pub(super) fn vm_id(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        plugin.vm_id().is_empty().then(|| {
            let what = "not there, so that it shares data with wasm filters of others that have \
                        none either; write vm_id: rolter";
            plugin.problem("vm_config.vm_id", what)
        })
    })
}

/// The filters that route, with their configurations, each with the first that is not like it.
fn pairs<'a, 'b>(envoy: &'a Envoy<'b>) -> impl Iterator<Item = (Routing<'a, 'b>, Routing<'a, 'b>)> {
    let plugins = envoy.plugins.iter().filter(|plugin| !plugin.is_of_policy());
    let routing: Vec<Routing<'a, 'b>> = plugins
        .filter_map(|plugin| {
            let ours = envoy.configs.get(plugin.config?)?;
            Some((plugin, ours, ours.config.as_ref()?))
        })
        .collect();
    let first = routing.first().copied();
    let others = routing.into_iter().skip(1);
    others.filter_map(move |other| Some((first?, other)))
}

type Routing<'a, 'b> = (&'a Plugin<'b>, &'a Ours, &'a Config);

/// Filters with engines in common should know of each other's requests.
pub(super) fn vm_ids(envoy: &Envoy<'_>) -> Vec<Problem> {
    let told = pairs(envoy).filter_map(|((first, _, one), (other, _, two))| {
        let names = names(one);
        let mut shared = two.providers.iter().map(|provider| &*provider.name);
        let shared = shared.find(|name| names.contains(name))?;
        let (here, there) = (other.vm_id(), first.vm_id());
        (here != there).then(|| {
            let what = format!(
                "{here:?}, but another filter that routes has {there:?}, and both send requests to \
                 {shared}: neither knows of the other's; write the same in both"
            );
            other.problem("vm_config.vm_id", what)
        })
    });
    told.collect()
}

fn names(config: &Config) -> BTreeSet<&str> {
    let providers = config.providers.iter();
    providers.map(|provider| &*provider.name).collect()
}

/// In one VM's data the same name means the same engine.
pub(super) fn same_name(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for ((first, one, one_config), (other, two, two_config)) in pairs(envoy) {
        if first.vm_id() != other.vm_id() || first.config == other.config {
            continue;
        }
        for (place, provider) in two_config.providers.iter().enumerate() {
            let mut others = one_config.providers.iter();
            let Some(known) = others.position(|other| other.name == provider.name) else {
                continue;
            };
            let keys = [("cluster", Reach::Cluster), ("endpoint", Reach::Pool)];
            for (key, reach) in keys {
                if !reaches(one_config, reach) || !reaches(two_config, reach) {
                    continue;
                }
                let (here, there) = (two.of_provider(place, key), one.of_provider(known, key));
                if here != there && !here.is_empty() && !there.is_empty() {
                    let name = &provider.name;
                    let what = format!(
                        "{here:?}, but {there:?} for {name} in another filter with the same vm_id, \
                         so that load and memory of both engines are taken for one's; write \
                         another name for one of them"
                    );
                    told.push(two.problem(&format!("providers[{place}].{key}"), what));
                }
            }
        }
    }
    told
}

/// The sidecar takes one.
pub(super) fn several(envoy: &Envoy<'_>) -> Vec<Problem> {
    let routing = envoy.plugins.iter().filter(|plugin| !plugin.is_of_policy());
    let different: BTreeSet<usize> = routing.filter_map(|plugin| plugin.config).collect();
    let count = different.len();
    let mut configs = envoy.configs();
    if count < 2 || !configs.any(|(_, config)| config.sidecar.is_some()) {
        return Vec::new();
    }
    let what = format!(
        "{count} different configurations are in this file, and `rolter-sidecar run --envoy-config` \
         refuses to choose; write the one to use into a file of its own, for --config"
    );
    vec![problem("", what)]
}
