// Whoever comes waits for the next tram: answers are collected and leave together every 90 ms (a batch with a flush interval); the timer is the limit: tram PORT.
const http = require('http');

let stop = [];
let trams = 0;

http.createServer((request, response) => {
    request.resume();
    stop.push(response);
}).listen(Number(process.argv.at(-1)), '127.0.0.1');

// The event loop is free in between; nobody stays behind for lack of seats.
setInterval(() => {
    const riders = stop;
    stop = [];
    if (riders.length > 0) trams++;
    for (const response of riders) response.end(`tram ${trams}\n`);
}, 90);
