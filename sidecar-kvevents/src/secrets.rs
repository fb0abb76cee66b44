//! What the configuration only names: keys and passwords, out of the sidecar's environment.
//!
//! Invariant: a variable that is named is set, or nothing starts. No message and no debug output
//! shows a value.

use reqwest::RequestBuilder;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use rolter_core::config::Config;
use std::fmt;
use thiserror::Error;

/// Why the sidecar cannot start.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Missing {
    /// There is no such variable, or it is empty.
    #[error("{path}: the sidecar's environment has no variable {name}; set it")]
    Variable {
        /// Where the configuration names it.
        path: String,
        /// Its name.
        name: String,
    },
    /// It has what no header can carry.
    #[error(
        "{path}: the variable {name} of the sidecar's environment is no key: it has control characters"
    )]
    Unsendable {
        /// Where the configuration names it.
        path: String,
        /// Its name.
        name: String,
    },
}

/// All secrets of a configuration.
#[derive(Default)]
pub struct Secrets {
    /// What authorizes at the providers, in the order of the configuration.
    keys: Vec<Option<HeaderValue>>,
    redis_password: Option<String>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Those that the configuration names, from `variable`, mostly [`std::env::var`].
    ///
    /// # Errors
    /// The first that is not there.
    pub fn read(
        config: &Config,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Missing> {
        let read = |path: &dyn Fn() -> String, name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => match variable(name).filter(|value| !value.trim().is_empty()) {
                Some(value) => Ok(Some(value)),
                None => Err(Missing::Variable {
                    path: path(),
                    name: name.clone(),
                }),
            },
        };
        let mut keys = Vec::with_capacity(config.providers.len());
        for (place, provider) in config.providers.iter().enumerate() {
            let path = || format!("providers[{place}].api_key_env");
            let key = read(&path, &provider.api_key_env)?;
            let key = key.map(|key| bearer(&key)).transpose().map_err(|()| {
                let name = provider.api_key_env.clone().unwrap_or_default();
                Missing::Unsendable { path: path(), name }
            })?;
            keys.push(key);
        }
        let redis = config.cache.as_ref().and_then(|cache| cache.redis.as_ref());
        let redis_password = match redis {
            Some(redis) => read(&|| "cache.redis_password_env".into(), &redis.password_env)?,
            None => None,
        };
        Ok(Self {
            keys,
            redis_password,
        })
    }

    /// A request to a provider's API, with the provider's key where it has one.
    pub fn authorize(&self, provider: usize, request: RequestBuilder) -> RequestBuilder {
        match self.keys.get(provider) {
            Some(Some(key)) => request.header(AUTHORIZATION, key),
            _ => request,
        }
    }

    /// Redis's password.
    pub fn redis_password(&self) -> Option<&str> {
        self.redis_password.as_deref()
    }
}

fn bearer(key: &str) -> Result<HeaderValue, ()> {
    // A newline at the end comes with files that are read into variables.
    let mut value = HeaderValue::try_from(format!("Bearer {}", key.trim())).map_err(drop)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config() -> Config {
        let document = json!({
            "sidecar": {"cluster": "s"},
            "cache": {"redis": "redis://127.0.0.1", "redis_password_env": "PASSWORD"},
            "providers": [
                {"name": "a", "cluster": "a"},
                {"name": "b", "cluster": "b", "api_base": "http://b", "api_key_env": "KEY_OF_B"},
            ],
            "routes": [{"name": "r", "targets": ["a", "b"], "cache": {}}],
        });
        Config::read(&document).unwrap()
    }

    fn read(variables: &[(&str, &str)]) -> Result<Secrets, Missing> {
        Secrets::read(&config(), |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_provider_gets_its_own_key_and_no_other() {
        let secrets = read(&[("KEY_OF_B", "sk-1\n"), ("PASSWORD", "pw")]).unwrap();
        let sent = |place| {
            let request = crate::poll::client().unwrap().get("http://h/");
            let request = secrets.authorize(place, request).build().unwrap();
            request.headers().get(AUTHORIZATION).cloned()
        };
        assert_eq!(sent(0), None);
        assert_eq!(sent(1).unwrap(), "Bearer sk-1");
        assert_eq!(sent(2), None);
        assert_eq!(secrets.redis_password(), Some("pw"));
        assert!(!format!("{secrets:?} {:?}", sent(1)).contains("sk-1"));
    }

    #[test]
    fn what_is_named_but_not_set_is_told_by_name() {
        for (variables, name) in [
            (&[("PASSWORD", "pw")][..], "KEY_OF_B"),
            (&[("KEY_OF_B", "sk-1")], "PASSWORD"),
            (&[("KEY_OF_B", "sk-1"), ("PASSWORD", " ")], "PASSWORD"),
            (&[("KEY_OF_B", "sk\n1"), ("PASSWORD", "pw")], "KEY_OF_B"),
        ] {
            let error = read(variables).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("sk"), "{error}");
        }
    }
}
