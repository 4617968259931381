'use strict';
(() => {
  // Samples in a curve, and milliseconds between two.
  const KEPT = 120, EVERY = 1000;
  // A longer interval says nothing about now; an answer that takes longer is none.
  const GAP_SECS = 5, PATIENCE = 5000;
  // Samples over which the requests of a prefix are counted.
  const PREFIX_SAMPLES = 10;
  const SVG = 'http://www.w3.org/2000/svg';
  const $ = id => document.getElementById(id);

  let token = '', before = null, timer = 0, asked = null, failed = null, answeredAt = null;
  const samples = [];

  // ---- Words

  const digits = x => x >= 99.95 ? x.toFixed(0) : x >= 9.995 ? x.toFixed(1) : x.toFixed(2);
  const trimmed = text => text.includes('.') ? text.replace(/\.?0+$/, '') : text;
  const scaled = (x, step, units, ones = digits) => {
    let i = 0;
    for (; i < units.length - 1 && x >= step * 0.9995; i++) x /= step;
    return trimmed((i ? digits : ones)(x)) + units[i];
  };
  const known = format => x => x == null || !isFinite(x) ? '–' : format(x);
  const count = known(x => scaled(x, 1000, ['', ' k', ' M', ' G', ' T'], x => x.toFixed(x >= 99.95 ? 0 : 1)));
  const bytes = known(x => scaled(x, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB']));
  const perSecond = known(x => count(x) + '/s');
  const time = known(x => x < 1 ? scaled(x * 1e6, 1000, [' µs', ' ms', ' s']) : trimmed(digits(x)) + ' s');
  // What is not all, and not nothing, is not shown as such.
  const percent = known(x => x > 0 && x < 0.0005 ? '< 0.1 %' : x < 1 && x >= 0.9995 ? '> 99.9 %' :
    trimmed((100 * x).toFixed(1)) + ' %');
  const clock = at => at.toLocaleTimeString([], { hour12: false });
  const lasting = secs => {
    const [d, h, m, s] = [secs / 86400, secs / 3600 % 24, secs / 60 % 60, secs % 60].map(Math.floor);
    return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min ${s} s` : `${s} s`;
  };

  // ---- Figures

  // The metrics of an answer: name → [{ labels, value }].
  const parse = stats => {
    const metrics = new Map();
    for (const [key, value] of Object.entries(stats)) {
      const at = key.indexOf('{'), name = at < 0 ? key : key.slice(0, at), labels = {};
      if (at >= 0) {
        for (const [, label, text] of key.slice(at).matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/gs)) {
          labels[label] = text.replace(/\\(.)/gs, (_, c) => c === 'n' ? '\n' : c);
        }
      }
      if (!metrics.has(name)) metrics.set(name, []);
      metrics.get(name).push({ labels, value });
    }
    return metrics;
  };

  const rows = (metrics, name, filter) => (metrics.get(name) || []).filter(({ labels }) => !filter || filter(labels));
  // The sum over labels; nothing where the server does not show it.
  const sum = (metrics, name, filter) => {
    const found = rows(metrics, name, filter);
    return found.length ? found.reduce((sum, { value }) => sum + value, 0) : null;
  };
  const ratio = (part, whole) => whole > 0 && part != null ? part / whole : null;

  // The time that a share of the requests did not exceed, from growths of cumulative buckets.
  const quantile = (buckets, share) => {
    const all = buckets.length ? buckets[buckets.length - 1].count : 0;
    if (!(all > 0)) return null;
    let [bound, below] = [0, 0];
    for (const { le, count } of buckets) {
      if (count >= share * all && count > below) {
        return isFinite(le) ? bound + (le - bound) * (share * all - below) / (count - below) : bound;
      }
      [bound, below] = [isFinite(le) ? le : bound, count];
    }
    return bound;
  };

  const key = labels => JSON.stringify(labels);
  // How much each counter of a name grew; a counter that was not there began at zero.
  const growth = (now, then, name, filter) => {
    const old = new Map(rows(then, name).map(({ labels, value }) => [key(labels), value]));
    return rows(now, name, filter).map(({ labels, value }) =>
      ({ labels, value: Math.max(0, value - (old.get(key(labels)) || 0)) }));
  };

  const measure = (now, then) => {
    const secs = sum(now, 'weir_uptime_seconds') - sum(then, 'weir_uptime_seconds');
    const grew = (name, filter) => {
      const found = growth(now, then, name, filter);
      return found.length ? found.reduce((sum, { value }) => sum + value, 0) : null;
    };
    const rate = (name, filter) => (grew(name, filter) ?? 0) / secs;
    const of = (operation, name) => grew(name, labels => labels.operation === operation);
    const batch = operation =>
      ratio(of(operation, 'weir_store_batch_size_sum'), of(operation, 'weir_store_batch_size_count'));
    const buckets = growth(now, then, 'weir_http_request_duration_seconds_bucket')
      .map(({ labels, value }) => ({ le: labels.le === '+Inf' ? Infinity : +labels.le, count: value }))
      .sort((a, b) => a.le - b.le);
    const status = first => labels => labels.code[0] === first;
    // What no server of this kind takes is no failure of it.
    const failed = ({ code }) => code[0] === '5' && code !== '501' && code !== '505';
    const hits = grew('weir_cache_requests_total', labels => labels.result === 'hit');
    const waited = ['read', 'write'].map(operation =>
      ratio(of(operation, 'weir_store_queue_seconds_sum'), of(operation, 'weir_store_queue_seconds_count')));
    return {
      requests: rate('weir_http_requests_total'),
      reads: rate('weir_http_requests_total', ({ method }) => method === 'GET' || method === 'HEAD'),
      writes: rate('weir_http_requests_total', ({ method }) => method === 'PUT' || method === 'DELETE'),
      errors: rate('weir_http_requests_total', failed),
      refused: rate('weir_http_requests_total', status('4')),
      shed: rate('weir_shed_total'),
      p50: quantile(buckets, 0.5), p95: quantile(buckets, 0.95), p99: quantile(buckets, 0.99),
      hits: ratio(hits, grew('weir_cache_requests_total')),
      evictions: rate('weir_cache_evictions_total'),
      entries: sum(now, 'weir_cache_entries'), entriesMost: sum(now, 'weir_cache_limit_entries'),
      bytes: sum(now, 'weir_cache_bytes'), bytesMost: sum(now, 'weir_cache_limit_bytes'),
      queued: sum(now, 'weir_store_queued'), queuedMost: sum(now, 'weir_store_queue_limit'), waited,
      batchRead: batch('read'), batchWrite: batch('write'),
      memory: sum(now, 'weir_memory_reserved_bytes'), memoryMost: sum(now, 'weir_memory_budget_bytes'),
      connections: sum(now, 'weir_http_connections'), connectionsMost: sum(now, 'weir_http_connections_limit'),
      accepted: rate('weir_http_connections_total'),
      busy: rate('weir_worker_busy_seconds_total') / (sum(now, 'weir_workers') || 1),
      workers: sum(now, 'weir_workers'),
      prefixes: new Map(rows(now, 'weir_prefix_requests').map(({ labels, value }) => [labels.prefix, value])),
      secs,
    };
  };

  // ---- Drawing

  const make = (parent, tag, attributes, text) => {
    const made = parent instanceof SVGElement || tag === 'svg' ?
      document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    if (text != null) made.textContent = text;
    return parent.appendChild(made);
  };

  // The stretches of a curve without gaps.
  const stretches = (values, x, y) => {
    const found = [];
    let open = null;
    values.forEach((value, i) => {
      if (value == null) { open = null; return; }
      if (!open) found.push(open = []);
      open.push([x(i), y(value)]);
    });
    return found;
  };
  const path = points => 'M' + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join('L') +
    (points.length === 1 ? 'h0.1' : '');

  const shift = KEPT - 1;
  const spark = (svg, values, most) => {
    const top = most || Math.max(...values.map(value => value || 0)) || 1;
    const offset = KEPT - values.length;
    const found = stretches(values, i => i + offset, value => 27 - 25 * Math.min(1, value / top));
    svg.replaceChildren();
    make(svg, 'path', { class: 'base', d: `M0 27.5H${shift}` });
    for (const points of found) {
      make(svg, 'path', { class: 'area', d: `${path(points)}L${points[points.length - 1][0]} 27.5L${points[0][0]} 27.5Z` });
      make(svg, 'path', { class: 'line', d: path(points) });
    }
  };

  const CARDS = [
    { id: 'requests', name: 'Requests', value: s => s.requests, show: perSecond,
      more: s => `reads ${perSecond(s.reads)}, writes ${perSecond(s.writes)}` },
    { id: 'p99', name: 'Latency (p99)', value: s => s.p99, show: time,
      more: s => `median ${time(s.p50)}, p95 ${time(s.p95)}` },
    { id: 'errors', name: 'Failures (5xx)', value: s => s.errors, show: perSecond,
      more: s => `4xx ${perSecond(s.refused)}, shed ${perSecond(s.shed)}`,
      level: s => s.errors > 0.01 * s.requests ? 'stop' : s.errors > 0 || s.shed > 0 ? 'care' : '' },
    { id: 'hits', name: 'Hit ratio of the cache', value: s => s.hits, show: percent, most: () => 1,
      more: s => `evictions ${perSecond(s.evictions)}` },
    { id: 'fill', name: 'Cache', value: s => Math.max(ratio(s.bytes, s.bytesMost) || 0, ratio(s.entries, s.entriesMost) || 0),
      show: x => percent(x) + ' full', most: () => 1,
      more: s => `${count(s.entries)} rows, ${bytes(s.bytes)} of ${bytes(s.bytesMost)}` },
    { id: 'queued', name: 'Waiting for the store', value: s => s.queued, show: count,
      more: s => `mean wait: reads ${time(s.waited[0])}, writes ${time(s.waited[1])}`,
      level: s => s.queued > 0.8 * s.queuedMost ? 'stop' : s.queued > 0.5 * s.queuedMost ? 'care' : '' },
    { id: 'batch', name: 'Writes in a batch', value: s => s.batchWrite, show: count,
      more: s => `reads in a batch: ${count(s.batchRead)}` },
    { id: 'busy', name: 'Workers busy', value: s => s.busy, show: percent, most: () => 1,
      more: s => `of ${count(s.workers)} ${s.workers === 1 ? 'worker' : 'workers'}` },
    { id: 'connections', name: 'Connections', value: s => s.connections, show: count,
      more: s => `of ${count(s.connectionsMost)}; ${perSecond(s.accepted)} new`,
      level: s => s.connections > 0.95 * s.connectionsMost ? 'stop' : s.connections > 0.8 * s.connectionsMost ? 'care' : '' },
    { id: 'memory', name: 'Memory of values on their way', value: s => ratio(s.memory, s.memoryMost), show: percent,
      most: () => 1, more: s => `${bytes(s.memory)} of ${bytes(s.memoryMost)}`,
      level: s => s.memory > 0.95 * s.memoryMost ? 'stop' : s.memory > 0.8 * s.memoryMost ? 'care' : '' },
  ];
  for (const card of CARDS) {
    const article = make($('cards'), 'article', { class: 'card', 'data-card': card.id });
    make(article, 'h3', {}, card.name);
    const figure = make(article, 'p', { class: 'figure' }, '–');
    const svg = make(article, 'svg', { viewBox: `0 0 ${shift} 28`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    Object.assign(card, { article, figure, svg, note: make(article, 'p', { class: 'more' }) });
  }

  const drawCards = () => {
    const now = samples[samples.length - 1];
    for (const card of CARDS) {
      const value = now ? card.value(now) : null;
      card.figure.textContent = value == null ? '–' : card.show(value);
      card.article.dataset.value = value ?? '';
      card.note.textContent = now ? card.more(now) : '';
      card.article.className = `card ${now && card.level ? card.level(now) : ''}`;
      spark(card.svg, samples.map(sample => sample && card.value(sample)), card.most && card.most());
    }
  };

  const LINES = [['p50', 'median'], ['p95', '95th percentile'], ['p99', '99th percentile']];
  const drawLatency = () => {
    const figure = $('latency'), now = samples[samples.length - 1];
    const [width, height, left, right, top, bottom] = [Math.max(figure.clientWidth, 240), 220, 58, 8, 10, 24];
    const values = samples.flatMap(sample => sample ? LINES.map(([of]) => sample[of]) : []).filter(value => value > 0);
    const low = Math.floor(Math.log10(values.length ? Math.min(...values) : 1e-5));
    const high = Math.max(low + 1, Math.ceil(Math.log10(values.length ? Math.max(...values) : 1e-2)));
    const x = i => left + (width - left - right) * (i + KEPT - samples.length) / shift;
    const y = value => top + (height - top - bottom) * (high - Math.log10(Math.max(value, 1e-9))) / (high - low);
    const told = LINES.map(([of, name]) => `${name} ${time(now && now[of])}`).join(', ');
    figure.replaceChildren();
    const svg = make(figure, 'svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Latency: ${told}` });
    for (let power = low; power <= high; power++) {
      const at = y(10 ** power);
      make(svg, 'path', { class: 'grid', d: `M${left} ${at}H${width - right}` });
      make(svg, 'text', { x: left - 8, y: at + 4, 'text-anchor': 'end' }, time(10 ** power));
    }
    for (const [secs, name, anchor] of [[shift, '2 min ago', 'start'], [shift / 2, '1 min ago', 'middle'], [0, 'now', 'end']]) {
      make(svg, 'text', { x: left + (width - left - right) * (1 - secs / shift), y: height - 6, 'text-anchor': anchor }, name);
    }
    for (const [of] of LINES) {
      for (const points of stretches(samples.map(sample => sample && sample[of]), x, y)) {
        make(svg, 'path', { class: `line ${of}`, d: path(points) });
      }
    }
    const caption = make(figure, 'figcaption');
    for (const [of, name] of LINES) {
      const item = make(caption, 'span', { class: of });
      make(item, 'i');
      item.append(name + ' ');
      make(item, 'b', { 'data-figure': of }, time(now && now[of]));
    }
  };

  const table = (id, lines) => {
    const names = [...$(id).querySelectorAll('th')].map(th => th.textContent);
    const body = $(id).tBodies[0];
    body.replaceChildren();
    for (const cells of lines) {
      const row = make(body, 'tr');
      cells.forEach(([text, level], i) => make(row, 'td', { 'data-name': names[i], class: level || '' }, text));
    }
    return body;
  };

  const drawStores = now => {
    const shards = rows(now, 'weir_store_up');
    table('stores', shards.map(({ labels: { shard }, value: up }) => {
      const here = labels => labels.shard === shard;
      const of = (name, operation) =>
        sum(now, name, labels => here(labels) && (!operation || labels.operation === operation));
      const kind = rows(now, 'weir_store_info', here).map(({ labels }) => labels.kind)[0] || 'store';
      const error = rows(now, 'weir_store_last_error_timestamp_seconds', here)[0];
      const refuses = of('weir_store_refuses_writes') > 0, waits = of('weir_store_standby') > 0;
      const waiting = operation =>
        [`${count(of('weir_store_queued', operation))} of ${count(of('weir_store_queue_limit', operation))}`];
      return [
        [shard == null ? kind : `${kind} (shard ${+shard + 1} of ${shards.length})`],
        waits ? ['standby'] : !up ? ['unavailable', 'stop'] : refuses ? ['refuses writes', 'care'] : ['owned'],
        [count(of('weir_store_epoch'))], waiting('read'), waiting('write'),
        error ? [`${when(error.value)}: ${error.labels.reason}`, up && !refuses ? '' : 'stop'] : ['none', 'none'],
      ];
    }));
    const waits = sum(now, 'weir_store_standby') > 0;
    const away = shards.filter(({ value }) => !value && !waits).map(({ labels: { shard } }) => {
      const error = rows(now, 'weir_store_last_error_timestamp_seconds', labels => labels.shard === shard)[0];
      const name = shard == null ? 'The store' : `Shard ${+shard + 1} of ${shards.length}`;
      return `${name} is unavailable: ${error ? error.labels.reason : 'the server’s log says why'}`;
    });
    if (sum(now, 'weir_store_refuses_writes') > 0) away.push('A store refuses writes; its last error says why.');
    if (sum(now, 'weir_draining') > 0) away.push('The server is shutting down.');
    $('alarm').textContent = away.join('\n');
    $('alarm').hidden = !away.length;
  };
  const when = secs => {
    const at = new Date(secs * 1000), today = new Date().toDateString() === at.toDateString();
    return today ? clock(at) : `${at.toLocaleDateString()} ${clock(at)}`;
  };

  const drawRequests = (now, then, secs) => {
    const name = 'weir_http_requests_total';
    const asked = rows(now, name).filter(({ value }) => value);
    const methods = [...new Set(asked.map(({ labels }) => labels.method))];
    table('requests', methods.map(method => [
      [method],
      ...['2', '3', '4', '5'].map(first => {
        const is = labels => labels.method === method && labels.code[0] === first;
        const rate = growth(now, then, name, is).reduce((sum, { value }) => sum + value, 0) / secs;
        return [count(rate), !rate ? 'zero' : first === '5' ? 'stop' : ''];
      }),
      [sum(now, name, labels => labels.method === method).toLocaleString('en')],
    ]));
  };

  const drawPrefixes = () => {
    const now = samples[samples.length - 1];
    if (!now) return;
    // Since the last gap, at most.
    let first = samples.length - 1, secs = 0;
    while (first > 0 && samples[first - 1] && samples.length - first <= PREFIX_SAMPLES) secs += samples[first--].secs;
    const then = samples[first].prefixes;
    const found = [...now.prefixes].map(([prefix, all]) =>
      ({ prefix, all, rate: secs ? Math.max(0, all - (then.get(prefix) || 0)) / secs : 0 }));
    found.sort((a, b) => b.rate - a.rate || b.all - a.all);
    const rates = found.reduce((sum, { rate }) => sum + rate, 0);
    const shown = found.slice(0, 10);
    const body = table('prefixes', shown.map(({ prefix, all, rate }) =>
      [[prefix || '(keys without /)', prefix ? '' : 'none'], [count(rate), rate ? '' : 'zero'], [count(all)]]));
    shown.forEach(({ rate }, i) => {
      const svg = make(body.rows[i].cells[0], 'svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
      make(svg, 'rect', { width: 100 * (ratio(rate, rates) || 0), height: 10 });
    });
    if (!shown.length) table('prefixes', [[['no keys so far', 'none'], [''], ['']]]);
  };

  // ---- Asking

  const say = (text, level) => {
    // Only when it changes: a screen reader reads it out.
    if ($('state').textContent !== text) $('state').textContent = text;
    $('state').className = level || '';
    $('figures').classList.toggle('old', level === 'stop');
  };

  const show = stats => {
    const now = parse(stats);
    const secs = before ? sum(now, 'weir_uptime_seconds') - sum(before, 'weir_uptime_seconds') : -1;
    // Of a server that was started anew, and after a pause, there is nothing to compare with.
    const goesOn = secs > 0 && secs < GAP_SECS;
    if (before) samples.push(goesOn ? measure(now, before) : null);
    if (samples.length > KEPT) samples.splice(0, samples.length - KEPT);
    const version = rows(now, 'weir_build_info').map(({ labels }) => labels.version)[0] || '';
    const kinds = [...new Set(rows(now, 'weir_store_info').map(({ labels }) => labels.kind))];
    const stores = rows(now, 'weir_store_up').length;
    $('version').textContent = version;
    $('about').textContent = `up ${lasting(sum(now, 'weir_uptime_seconds') || 0)}, ` +
      (stores > 1 ? `${stores} stores: ` : 'store ') + kinds.join(', ');
    document.title = `weir at ${location.host}`;
    $('figures').hidden = false;
    drawCards();
    drawLatency();
    drawStores(now);
    drawRequests(now, goesOn ? before : now, goesOn ? secs : 1);
    drawPrefixes();
    before = now;
  };

  const askForToken = (answer, why) => {
    token = '';
    $('ask').hidden = false;
    $('figures').hidden = true;
    $('refusal').textContent = why;
    $('token').focus();
    say(answer === 401 ? 'waiting for a token' : 'refused');
  };

  const ask = async () => {
    const began = performance.now(), sent = token;
    const control = asked = new AbortController();
    const late = setTimeout(() => control.abort(), PATIENCE);
    try {
      const headers = sent ? { Authorization: `Bearer ${sent}` } : {};
      const answer = await fetch('stats', { cache: 'no-store', headers, signal: control.signal });
      if (answer.status === 401 || answer.status === 403) {
        const problem = await answer.json().catch(() => ({}));
        if (document.hidden) return;
        return askForToken(answer.status, sent || answer.status === 403 ? problem.detail || 'The server refuses this token.' : '');
      }
      if (!answer.ok) throw new Error(`it answers with status ${answer.status}`);
      const stats = await answer.json();
      if (asked !== control) return;
      $('ask').hidden = true;
      [failed, answeredAt] = [null, new Date()];
      show(stats);
      say('live', 'live');
    } catch (error) {
      if (asked !== control) return;
      failed = failed || answeredAt || new Date();
      if (samples.length) samples.push(null);
      before = null;
      const why = error.name === 'AbortError' ? `no answer within ${PATIENCE / 1000} s` :
        error instanceof TypeError ? 'no connection' : error.message;
      say(`the server has not answered since ${clock(failed)}: ${why}`, 'stop');
    } finally {
      clearTimeout(late);
    }
    timer = setTimeout(ask, Math.max(0, EVERY - (performance.now() - began)));
  };

  const restart = () => {
    clearTimeout(timer);
    if (asked) asked.abort();
    asked = null;
    if (document.hidden) say('paused');
    else ask();
  };

  $('ask').addEventListener('submit', event => {
    event.preventDefault();
    token = $('token').value.trim();
    $('token').value = '';
    restart();
  });
  document.addEventListener('visibilitychange', restart);
  addEventListener('resize', () => before && drawLatency());
  $('about').textContent = 'asking for figures';
  restart();
})();
