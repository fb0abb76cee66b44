use super::*;
use rolter_core::kv::feed::{Change, ReplicaId};
use serde_json::json;
use std::net::SocketAddr;

/// A provider at one address and one at a name, with two ranks each.
fn config() -> Config {
    let events = |host| json!({"endpoint": format!("tcp://{host}:5557"), "ranks": 2});
    let document = json!({
        "sidecar": {"cluster": "s"},
        "providers": [
            {"name": "vllm", "endpoint": "vllm.svc:8000", "kv_events": events("vllm.svc")},
            {"name": "one", "endpoint": "10.0.0.1:8000", "kv_events": events("10.0.0.1")},
        ],
        "routes": [{"name": "r", "reach": "pool", "targets": ["vllm", "one"]}],
    });
    Config::read(&document).unwrap()
}

fn address(last: u8) -> SocketAddr {
    ([10, 0, 1, last], 8000).into()
}

fn add(state: &State, config: &Config, last: u8) -> Arc<Target> {
    let came = vec![config.providers[0].at(address(last))];
    let turnover = Turnover {
        came,
        ..Turnover::default()
    };
    state.turn_over(0, &turnover).remove(0)
}

fn back(target: &Arc<Target>) -> Turnover {
    Turnover {
        back: vec![Arc::clone(target)],
        ..Turnover::default()
    }
}

fn gone(target: &Arc<Target>) -> Turnover {
    Turnover {
        gone: vec![Arc::clone(target)],
        ..Turnover::default()
    }
}

fn forgotten(target: &Arc<Target>) -> Turnover {
    Turnover {
        forgotten: vec![Arc::clone(target)],
        ..Turnover::default()
    }
}

fn cursor(page: &Page) -> FeedCursor {
    page.cursor.parse().unwrap()
}

/// The target's name of each number.
fn owners(page: &Page) -> Vec<&str> {
    let replicas = page.replicas.iter();
    replicas.map(|replica| replica.target.as_str()).collect()
}

#[test]
fn whatever_changes_between_two_questions_is_not_missed() {
    let config = config();
    let state = State::new(&config);
    let member = add(&state, &config, 7);
    let replica = Arc::clone(&member.replicas[0]);
    let trusted = StreamView {
        trusted: true,
        ..StreamView::default()
    };
    let changes: [(&str, &dyn Fn()); 8] = [
        ("somebody comes", &|| drop(add(&state, &config, 8))),
        ("is gone", &|| drop(state.turn_over(0, &gone(&member)))),
        ("is back", &|| drop(state.turn_over(0, &back(&member)))),
        ("a stream is trusted", &|| {
            state.note_stream(&replica, trusted);
        }),
        ("a target is ill", &|| {
            state.note_target(&member, |seen| seen.healthy = Some(false));
        }),
        ("adapters are others", &|| {
            state.note_target(&member, |seen| seen.adapters = vec!["sql".into()]);
        }),
        ("blocks are cleared", &|| {
            state.index().clear(replica.id);
            state.wake();
        }),
        ("somebody is forgotten", &|| {
            state.turn_over(0, &forgotten(&member));
        }),
    ];
    let mut page = state.page(None);
    for (what, change) in changes {
        while page.more {
            page = state.page(Some(cursor(&page)));
        }
        assert!(state.is_current(&cursor(&page)), "before {what}");
        let news = state.news();
        change();
        assert!(news.has_changed().unwrap(), "{what}");
        assert!(!state.is_current(&cursor(&page)), "{what}");
        page = state.page(Some(cursor(&page)));
    }
    // What is no change is no news.
    let news = state.news();
    state.note_stream(&replica, trusted);
    assert!(!news.has_changed().unwrap());
}

#[test]
fn who_has_come_has_its_own_place_and_leaves_it_to_others() {
    let config = config();
    let state = State::new(&config);
    let page = state.page(None);
    assert_eq!(owners(&page), ["one", "one"]);
    assert_eq!(page.members[0].members, None);
    let [seventh, eighth] = [7, 8].map(|last| add(&state, &config, last));
    let (seven, eight) = ("vllm/10.0.1.7:8000", "vllm/10.0.1.8:8000");
    let page = state.page(Some(cursor(&page)));
    assert_eq!(owners(&page), ["one", "one", seven, seven, eight, eight]);
    let names: Vec<_> = page.targets.iter().map(|target| &target.target).collect();
    assert_eq!(names, [seven, eight, "one"]);
    state.turn_over(0, &forgotten(&seventh));
    let page = state.page(Some(cursor(&page)));
    assert_eq!(owners(&page), ["one", "one", "", "", eight, eight]);
    let mut bytes = &*page.changes;
    let changes: Vec<_> = std::iter::from_fn(|| Change::read(&mut bytes)).collect();
    assert_eq!(changes, [2, 3].map(|id| Change::Clear(ReplicaId(id))));
    // Those that were there longest come first.
    state.turn_over(0, &gone(&eighth));
    let ninth = add(&state, &config, 9);
    let page = state.page(Some(cursor(&page)));
    let nine = "vllm/10.0.1.9:8000";
    assert_eq!(owners(&page), ["one", "one", nine, nine, eight, eight]);
    assert_eq!(page.replicas[2].age_ms, None);
    let member = |last, present| Member {
        address: address(last),
        present,
    };
    let members = vec![member(8, false), member(9, true)];
    assert_eq!(page.members[0].members, Some(members));
    drop(ninth);
}

#[test]
fn whoever_reads_sees_all_of_a_turnover_or_nothing() {
    let config = config();
    let state = State::new(&config);
    let mut present = add(&state, &config, 0);
    let before = state.page(None);
    // Each time another one is there alone, with one that is gone or none.
    let turns = 1_u8..=200;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut page = state.page(Some(cursor(&before)));
            loop {
                let members = page.members[0].members.as_ref().unwrap();
                let present = members.iter().filter(|member| member.present);
                let present: Vec<_> = present.map(|member| member.address).collect();
                assert_eq!(present.len(), 1, "{members:?}");
                for member in members {
                    let name = config.providers[0].member_name(member.address);
                    let ranks = page.replicas.iter();
                    let ranks = ranks.filter(|replica| replica.target == name);
                    assert_eq!(ranks.count(), 2, "{name}");
                }
                if present == [address(*turns.end())] {
                    break;
                }
                page = state.page(Some(cursor(&page)));
            }
        });
        let mut last = None;
        for turn in turns.clone() {
            let turnover = Turnover {
                came: vec![config.providers[0].at(address(turn))],
                gone: vec![Arc::clone(&present)],
                forgotten: last.into_iter().collect(),
                ..Turnover::default()
            };
            let came = state.turn_over(0, &turnover).remove(0);
            last = Some(std::mem::replace(&mut present, came));
        }
        reader.join().unwrap();
    });
}
