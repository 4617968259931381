// A service that asks another one for each request, over at most two connections: node downstream.js PORT.
// The other one is a process of its own, and takes 20 ms.
const http = require('http');
const { fork } = require('child_process');
if (process.argv[2] === 'behind') {
  const behind = http.createServer((request, response) => setTimeout(() => response.end('part'), 20));
  behind.listen(0, '127.0.0.1', () => process.send(behind.address().port));
  process.on('disconnect', () => process.exit());
} else {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 2 });
  fork(__filename, ['behind']).on('message', (port) => {
    http.createServer((request, response) => {
      http.get({ port, host: '127.0.0.1', agent }, (part) => {
        part.resume().on('end', () => response.end('whole'));
      });
    }).listen(Number(process.argv[2]), '127.0.0.1');
  });
}
