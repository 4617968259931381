// An event loop that hashes each password itself: node blocked_loop.js PORT.
const http = require('http');
const crypto = require('crypto');
http.createServer((request, response) => {
  const hash = crypto.pbkdf2Sync('secret', 'salt', 4000, 32, 'sha256');
  response.setHeader('Content-Type', 'application/json');
  response.end(JSON.stringify({ hash: hash.toString('hex') }));
}).listen(Number(process.argv[2]), '127.0.0.1');
