# Varnish in front of weir: values are stored, and weir is asked whether they changed before they are used again.
# Start weir with --host and the public name: --host kv.example.org. Tested with Varnish 7.1.
# varnishd -f /etc/varnish/weir.vcl -a 127.0.0.1:8443 -s default,1G
vcl 4.1;

import std;

backend weir {
    .host = "127.0.0.1";
    .port = "8080";
    .connect_timeout = 2s;
    # Longer than weir's --store-timeout (10 s), so that weir's own answer with its Weir-Outcome arrives.
    .first_byte_timeout = 15s;
    .between_bytes_timeout = 15s;
    # Not /readyz, which is 503 if one of several stores is away: keys of the others, and reads of a replica, are answered.
    .probe = {
        .request = "GET /healthz HTTP/1.1" "Host: localhost" "Connection: close";
        .interval = 1s;
        .timeout = 2s;
        .window = 3;
        .threshold = 2;
        .initial = 2;
    }
}

sub vcl_recv {
    # For operators only.
    if (req.url ~ "(?i)^([a-z]+://[^/?]*)?/(metrics|stats|dashboard)(\?|$)") {
        return (synth(403));
    }
    if (req.method != "GET" && req.method != "HEAD") {
        # A pipe that finds no server ends without an answer, and leaves the outcome of a write unknown.
        if (!std.healthy(req.backend_hint)) {
            return (synth(503));
        }
        # A connection of its own, and never a second try: a PUT without an answer may have happened.
        set req.http.Connection = "close";
        return (pipe);
    }
    # What a token lets one client read is not for another. A request that waits for a change would hold up all others for its key,
    # and If-Match is not passed on with what may be stored.
    if (req.http.Authorization || req.http.Prefer || req.http.If-Match || req.url !~ "^/kv/") {
        return (pass);
    }
    # Keys are case-sensitive and have no parameters; values are the same for all hosts and encodings.
    unset req.http.Accept-Encoding;
    # A request that waited for another's answer would be answered with it, although a write may have ended in between.
    set req.hash_ignore_busy = true;
    return (hash);
}

sub vcl_hit {
    # The answer came while this request was on its way here: ask weir again.
    return (pass);
}

sub vcl_deliver {
    if (resp.http.Weir-Coding) {
        set resp.http.Content-Encoding = resp.http.Weir-Coding;
        unset resp.http.Weir-Coding;
    }
}

sub vcl_synth {
    if (resp.status == 503) {
        set resp.http.Weir-Outcome = "not-applied";
    }
}

sub vcl_backend_response {
    # Not for Varnish, which would unpack the value, and weaken its ETag.
    if (beresp.http.Content-Encoding) {
        set beresp.http.Weir-Coding = beresp.http.Content-Encoding;
        unset beresp.http.Content-Encoding;
    }
    if (beresp.status == 200 && beresp.http.ETag && !bereq.uncacheable) {
        # Kept for an hour after its last use, and never used without asking weir: If-None-Match, and 304 if it is the same.
        # The lifetime is over before the answer has come; of 0 Varnish would not keep the value.
        set beresp.ttl = 1ms / 1000;
        set beresp.grace = 0s;
        set beresp.keep = 1h;
        return (deliver);
    }
    set beresp.uncacheable = true;
    set beresp.ttl = 0s;
    return (deliver);
}
