//! What every store must do, as a test that runs against each of them, the real servers included.
//!
//! Panics where a store breaks a promise. What the store held is gone afterwards.

pub mod scripted;

use super::{Error, EventBlock, Found, Kind, Lease, Listed, Listing, Part, Session, Store};
use kv::{Attributes, Change, Key, Row, Timestamp, Version, Write};

fn key(name: &str) -> Key {
    Key::new(format!("contract/{name}").as_bytes()).expect("a short key")
}

fn put(name: &str, value: &[u8], content_type: &str, version: Version) -> Write {
    let key = key(name);
    let row = Row::new(&key, content_type, value, version);
    Write { key, version, change: Change::Put(row) }
}

fn delete(name: &str, version: Version) -> Write {
    Write { key: key(name), version, change: Change::Delete }
}

async fn values(session: &mut dyn Session, names: &[&str]) -> Vec<Option<Vec<u8>>> {
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    let rows = session.read(&keys).await.expect("a read");
    rows.into_iter().map(|row| row.map(|row| row.value().to_vec())).collect()
}

/// Acquires the store and checks everything that one lease can show.
pub async fn all(store: &dyn Store) {
    let lease = acquire_patiently(store, Part::WHOLE).await.expect("a lease");
    let mut session = store.connect(lease.epoch).await.expect("a session");
    let session = session.as_mut();
    let mut counter = Version::first_of(lease.epoch).0;
    let mut next = || {
        counter += 1;
        Version(counter)
    };

    // Absent, created, replaced, deleted, deleted again; each write says whether the key was there.
    let start: Vec<Write> = vec![delete("a", next()), delete("b", next()), delete("c", next())];
    session.write(&start).await.expect("a clean start");
    assert_eq!(values(session, &["a", "b"]).await, [None, None]);
    assert_eq!(session.write(&[put("a", b"1", "", next())]).await.expect("a put"), [Found::Absent]);
    assert_eq!(session.write(&[put("a", b"2", "", next())]).await.expect("a put"), [Found::Present]);
    assert_eq!(values(session, &["a"]).await, [Some(b"2".to_vec())]);

    // A mixed batch answers in its order, and so does a read.
    let mixed = [delete("a", next()), put("b", b"b", "", next()), delete("c", next())];
    assert_eq!(
        session.write(&mixed).await.expect("a mixed batch"),
        [Found::Present, Found::Absent, Found::Absent]
    );
    assert_eq!(values(session, &["c", "b", "a"]).await, [None, Some(b"b".to_vec()), None]);
    assert_eq!(session.write(&[delete("b", next())]).await.expect("a delete"), [Found::Present]);
    assert_eq!(session.write(&[delete("b", next())]).await.expect("a delete"), [Found::Absent]);

    // Every byte, the empty value and the content type come back; so does the version.
    let every_byte: Vec<u8> = (0..=255).collect();
    let version = next();
    let odd = "b\u{1}\u{0}'\"%_\\ü";
    session.write(&[put(odd, &every_byte, "text/plain; charset=utf-8", version)]).await.expect("odd bytes");
    session.write(&[put("empty", b"", "", next())]).await.expect("an empty value");
    let rows = session.read(&[key("empty"), key(odd)]).await.expect("a read");
    let (empty, odd_row) = (rows[0].clone().expect("present"), rows[1].clone().expect("present"));
    assert_eq!((empty.value(), empty.content_type()), (&b""[..], &b""[..]));
    assert_eq!(odd_row.key(), key(odd).as_bytes());
    assert_eq!(
        (odd_row.value(), odd_row.content_type()),
        (&every_byte[..], &b"text/plain; charset=utf-8"[..])
    );
    assert_eq!(odd_row.version(), version);

    // Large values, and batches of many.
    let large = vec![0xA5; 3 << 20];
    session.write(&[put("large", &large, "", next())]).await.expect("a large value");
    assert!(values(session, &["large"]).await == [Some(large)], "a large value comes back");
    let names: Vec<String> = (0..1000).map(|i| format!("many/{i:04}")).collect();
    let many: Vec<Write> = names.iter().map(|name| put(name, name.as_bytes(), "", next())).collect();
    assert_eq!(session.write(&many).await.expect("many writes").len(), 1000);
    let read = values(session, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert!(read.iter().zip(&names).all(|(row, name)| row.as_deref() == Some(name.as_bytes())));

    // Attributes come back, and lists are in the order of the bytes of the keys.
    let attributes =
        Attributes { content_type: "a/b", content_encoding: "gzip, br", expires: Some(Timestamp(5000)) };
    let put_with = |name: &str, attributes, value: &[u8], version| {
        let row = Row::with(&key(name), attributes, value, version);
        Write { key: key(name), version, change: Change::Put(row) }
    };
    let ends = next();
    let zipped = Attributes { expires: None, ..attributes };
    let listed = [
        put_with("list/b", attributes, b"ends", ends),
        put_with("list/b\u{0}", zipped, b"zipped", next()),
        put("list/a", &[7; 3000], "", next()),
        put("list/\u{fc}", b"", "", next()),
    ];
    for write in &listed {
        session.write(std::slice::from_ref(write)).await.expect("a put");
    }
    let read = session.read(&[key("list/b"), key("list/b\u{0}")]).await.expect("a read");
    let read = read.iter().flatten().map(|row| (row.attributes(), row.value()));
    assert_eq!(read.collect::<Vec<_>>(), [(attributes, &b"ends"[..]), (zipped, b"zipped")]);
    let lists = store.capabilities().no_lists.is_none();
    let under = |prefix: &str, limit, now| Listing {
        from: key(prefix).as_bytes().to_vec(),
        until: Some(key(&format!("{prefix}\u{10ffff}")).as_bytes().to_vec()),
        limit,
        now: Timestamp(now),
        expired: false,
    };
    for (listing, expected) in [
        (under("list/", 10, 4999), &["a 3000", "b 4", "b\u{0} 6", "\u{fc} 0"][..]),
        (under("list/", 10, 5000), &["a 3000", "b\u{0} 6", "\u{fc} 0"]),
        (under("list/", 2, 0), &["a 3000", "b 4"]),
        (Listing { until: None, ..under("list/b\u{0}", 10, 0) }, &["b\u{0} 6", "\u{fc} 0"]),
        (under("list/c", 10, 0), &[]),
        (Listing { until: Some(b"a".to_vec()), ..under("list/", 10, 0) }, &[]),
    ] {
        if !lists {
            assert_eq!(session.list(&listing).await.unwrap_err().kind(), Kind::Unsupported);
            continue;
        }
        let rows = session.list(&listing).await.expect("a list");
        let name = |listed: &Listed| {
            assert!(listed.row.value().is_empty());
            let key = String::from_utf8_lossy(&listed.row.key()[b"contract/list/".len()..]).into_owned();
            format!("{key} {}", listed.value_bytes)
        };
        // Behind the last of these keys are those of a store that is not empty.
        let rows = rows.iter().filter(|listed| listed.row.key().starts_with(b"contract/list/")).map(name);
        assert_eq!(rows.collect::<Vec<_>>(), expected, "{listing:?}");
    }
    if lists {
        let first = session.list(&under("list/b", 1, 0)).await.expect("a list");
        assert_eq!((first[0].row.version(), first[0].row.attributes()), (ends, attributes));
        assert_eq!(session.list(&under("many/", 500, 0)).await.expect("a list").len(), 500);
    }

    // The same version again gives another end, to the row by which that was decided.
    let later = Attributes { expires: Some(Timestamp(9000)), ..attributes };
    session.begin_decision(false, &[key("list/b")]);
    session.read(&[key("list/b")]).await.expect("a read");
    let touched = session.write(&[put_with("list/b", later, b"ends", ends)]).await.expect("a write");
    assert_eq!(touched, [Found::Present]);
    let read = session.read(&[key("list/b")]).await.expect("a read");
    assert_eq!(read[0].as_ref().map(|row| (row.attributes(), row.version())), Some((later, ends)));
    if lists {
        for (now, expected) in [(8999, 0), (9000, 1)] {
            let expired = Listing { expired: true, ..under("list/", 10, now) };
            assert_eq!(session.list(&expired).await.expect("a list").len(), expected);
        }
    }
    session.write(&[put("list/b", b"stays", "", next())]).await.expect("a put");
    if lists {
        let expired = Listing { expired: true, ..under("list/", 10, u64::MAX >> 1) };
        assert!(session.list(&expired).await.expect("a list").is_empty());
    }

    // Nothing at all is fine too.
    assert!(session.read(&[]).await.expect("no read").is_empty());
    assert!(session.write(&[]).await.expect("no write").is_empty());

    // Sessions see each other's writes as soon as they are acknowledged.
    let mut other = store.connect(lease.epoch).await.expect("a second session");
    session.write(&[put("a", b"seen", "", next())]).await.expect("a put");
    assert_eq!(values(other.as_mut(), &["a"]).await, [Some(b"seen".to_vec())]);

    // Cleared, nothing is left, and what follows begins anew.
    if store.capabilities().no_clear.is_some() {
        assert_eq!(session.clear().await.unwrap_err().kind(), Kind::Unsupported);
        return;
    }
    session.clear().await.expect("a clear");
    assert_eq!(values(other.as_mut(), &["a", "large", "many/0001"]).await, [None, None, None]);
    assert_eq!(session.write(&[put("a", b"again", "", next())]).await.expect("a put"), [Found::Absent]);
}

/// What is written under one lease is there under the next, whose epoch is greater.
pub async fn survives_reopening(open: impl Fn() -> Box<dyn Store>) {
    let first_epoch = {
        let store = open();
        let lease = acquire_patiently(store.as_ref(), Part::WHOLE).await.expect("a lease");
        let mut session = store.connect(lease.epoch).await.expect("a session");
        session.write(&[put("kept", b"yes", "", Version::first_of(lease.epoch))]).await.expect("a put");
        lease.epoch
    };
    let store = open();
    let lease = acquire_patiently(store.as_ref(), Part::WHOLE).await.expect("a lease");
    assert!(lease.epoch > first_epoch, "epochs only grow");
    let mut session = store.connect(lease.epoch).await.expect("a session");
    assert_eq!(values(session.as_mut(), &["kept"]).await, [Some(b"yes".to_vec())]);
    let stale = store.connect(first_epoch).await.err().map(|error| error.kind());
    assert_eq!(stale, Some(Kind::Unavailable), "a session of an earlier lease is refused");
}

/// Events are there if, and only if, their writes are; also under the next lease. Old ones can be removed.
pub async fn keeps_events(open: impl Fn() -> Box<dyn Store>) {
    let block = |version: Version, body: &[u8]| {
        let at = Timestamp(1_700_000_000_000);
        EventBlock { id: version.0, at, body: body.into() }
    };
    let blocks = {
        let store = open();
        let lease = acquire_patiently(store.as_ref(), Part::WHOLE).await.expect("a lease");
        let mut session = store.connect(lease.epoch).await.expect("a session");
        assert!(session.events(0).await.expect("no events").is_empty());
        let version = |number| Version(Version::first_of(lease.epoch).0 + number);
        let blocks: Vec<EventBlock> =
            (1..=6).map(|number| block(version(10 * number), &[number as u8; 40])).collect();
        let put = |name, number| put(name, b"", "", version(number));
        let delete = |name, number| delete(name, version(number));
        // With every form of a batch, and alone.
        let batches = [
            (vec![put("events/a", 1)], vec![Found::Absent]),
            (vec![put("events/a", 2), put("events/b", 3)], vec![Found::Present, Found::Absent]),
            (vec![delete("events/a", 4)], vec![Found::Present]),
            (
                vec![delete("events/a", 5), put("events/b", 6), delete("events/c", 7)],
                vec![Found::Absent, Found::Present, Found::Absent],
            ),
            (vec![delete("events/b", 8), delete("events/c", 9)], vec![Found::Present, Found::Absent]),
            (vec![], vec![]),
        ];
        for ((writes, found), block) in batches.iter().zip(&blocks) {
            assert_eq!(&session.write_with(writes, Some(block)).await.expect("a write with events"), found);
        }
        // Without events, as before.
        session.write(&[put("events/a", 100)]).await.expect("a write without events");
        assert_eq!(session.events(0).await.expect("events"), blocks);
        assert_eq!(session.events(blocks[3].id).await.expect("events"), blocks[4..]);
        session.trim_events(blocks[1].id).await.expect("a trim");
        session.trim_events(blocks[1].id).await.expect("a trim again");
        blocks
    };
    let store = open();
    let lease = acquire_patiently(store.as_ref(), Part::WHOLE).await.expect("a lease");
    let mut session = store.connect(lease.epoch).await.expect("a session");
    assert_eq!(session.events(0).await.expect("events"), blocks[2..]);
    session.clear().await.expect("a clear");
    assert!(session.events(0).await.expect("no events").is_empty());
    let many: Vec<EventBlock> =
        (1..1200).map(|number| block(Version(Version::first_of(lease.epoch).0 + number), b"many")).collect();
    for block in &many {
        session.write_with(&[], Some(block)).await.expect("a block");
    }
    let mut read: Vec<EventBlock> = Vec::new();
    loop {
        let more = session.events(read.last().map_or(0, |block| block.id)).await.expect("events");
        if more.is_empty() {
            break;
        }
        read.extend(more);
    }
    assert_eq!(read, many);
}

/// A durable store remembers which part it was first leased as, and refuses any other.
pub async fn remembers_its_part(open: impl Fn() -> Box<dyn Store>) {
    let part = |index, of| Part { index, of };
    drop(acquire_patiently(open().as_ref(), part(1, 2)).await.expect("a lease"));
    for wrong in [part(0, 2), part(1, 3), Part::WHOLE] {
        let refused = acquire_patiently(open().as_ref(), wrong).await.err().expect("a refusal");
        assert_eq!(refused.kind(), Kind::Config, "{refused}");
        let said = refused.to_string();
        assert!(said.contains("is shard 2 of 2, but was given as") && !said.contains('\n'), "{said}");
    }
    // A refusal takes nothing and changes nothing.
    let store = open();
    let lease = acquire_patiently(store.as_ref(), part(1, 2)).await.expect("a lease");
    let mut session = store.connect(lease.epoch).await.expect("a session");
    session.write(&[put("kept", b"yes", "", Version::first_of(lease.epoch))]).await.expect("a put");
}

/// Acquires a store whose last holder has only just gone: a server may need a moment to notice.
async fn acquire_patiently(store: &dyn Store, part: Part) -> Result<Lease, Error> {
    for _ in 0..3000 {
        match store.acquire(part).await {
            // A store of this process that was dropped may have the lease for a moment yet.
            Err(error) if error.kind().is_taken() || error.to_string().contains("is given twice") => {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            result => return result,
        }
    }
    panic!("the store stays taken");
}
