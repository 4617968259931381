//! Rows that have expired, in the cache and in its shadow policies.

use super::*;

/// A cache of `policy` with two rows, and a shadow policy.
fn tiered(policy: &str, shadow: &str) -> Tiered {
    let [policy, shadow] = [policy, shadow].map(|name| policy::find(name).unwrap());
    let cache = Cache::new(Limits { entries: 2, bytes: 1 << 20 }, 1, policy).with_shadow_policies(&[shadow]);
    let store = store::open("memory:").unwrap();
    Tiered::start(cache, store, Config::default(), Duration::from_secs(30)).unwrap()
}

fn insert(tiered: &Tiered, key: &str, expires: Option<Timestamp>) {
    let key = Key::new(key.as_bytes()).unwrap();
    let row = Row::new(&key, "", b"1", Version(1)).with_expiry(&key, expires);
    tiered.cache().insert(tiered.cache().place(key.as_bytes()), row);
}

fn shadow(tiered: &Tiered) -> (u64, u64) {
    let shadows = tiered.cache().shadow_counts();
    (shadows[0].hits, shadows[0].misses)
}

/// It was two hits and a miss.
#[tokio::test]
async fn an_expired_row_is_one_miss_of_its_shadow() {
    let tiered = tiered("lru", "lru");
    insert(&tiered, KEY, Some(Timestamp(1)));
    assert!(!tiered.is_cached(KEY.as_bytes()) && tiered.cached(KEY.as_bytes(), |_| ()).is_none());
    assert_eq!(tiered.get(&key()).await.unwrap().row, None);
    assert_eq!(shadow(&tiered), (0, 1));
    assert_eq!(tiered.cache().counts().entries, 0);
}

/// Each read of it was a hit of the shadow policy, for ever.
#[tokio::test]
async fn a_row_that_only_a_shadow_holds_leaves_it_when_the_store_has_it_no_more() {
    for is_removed_before in [false, true] {
        // The cache has sent the oldest row away, and the shadow policy the one that nobody asked for.
        let tiered = tiered("fifo", "lru");
        insert(&tiered, KEY, Some(Timestamp(1)));
        insert(&tiered, "b", None);
        let place = tiered.cache().place(KEY.as_bytes());
        assert!(tiered.cache().get(place, KEY.as_bytes()).is_some());
        insert(&tiered, "c", None);
        assert!(tiered.cache().get(place, KEY.as_bytes()).is_none());
        if is_removed_before {
            tiered.tier.expired(&key(), Timestamp(2));
        }
        for _ in 0..10 {
            assert_eq!(tiered.get(&key()).await.unwrap().row, None);
        }
        assert_eq!(shadow(&tiered), if is_removed_before { (1, 10) } else { (2, 9) });
    }
}

#[tokio::test]
async fn a_row_that_was_removed_because_it_expired_leaves_the_cache_and_a_newer_one_stays() {
    let tiered = tiered("lru", "lru");
    insert(&tiered, KEY, Some(Timestamp(1)));
    insert(&tiered, "b", Some(Timestamp(3)));
    for key in [KEY, "b"] {
        tiered.tier.expired(&Key::new(key.as_bytes()).unwrap(), Timestamp(2));
    }
    assert_eq!(tiered.cache().counts().entries, 1);
    assert!(tiered.cache().get(tiered.cache().place(b"b"), b"b").is_some());
}

/// They were the hottest rows, which no other one could replace.
#[test]
fn reads_of_an_expired_row_make_it_no_more_popular() {
    let tiered = tiered("lru", "lru");
    insert(&tiered, KEY, Some(Timestamp(1)));
    insert(&tiered, "b", None);
    assert!(tiered.cached(KEY.as_bytes(), |_| ()).is_none());
    insert(&tiered, "c", None);
    let is_there = |key: &[u8]| tiered.cache().get(tiered.cache().place(key), key).is_some();
    assert_eq!([is_there(KEY.as_bytes()), is_there(b"b")], [false, true]);
}
