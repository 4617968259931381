// A ledger whose entries form a chain that only one thread at a time may lengthen, with much computing; that lock is the limit: java -cp DIR Ledger PORT.
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.ReentrantLock;

class Ledger {
    private final ReentrantLock lock = new ReentrantLock();
    private long last = 88172645463325252L;

    // About 2 ms of computing when compiled, all of it with the lock held.
    long lengthen() {
        lock.lock();
        try {
            long x = last;
            for (int i = 0; i < 1_200_000; i++) {
                x ^= x << 13;
                x ^= x >>> 7;
                x ^= x << 17;
            }
            last = x;
            return x;
        } finally {
            lock.unlock();
        }
    }

    public static void main(String[] args) throws IOException {
        Ledger ledger = new Ledger();
        // Else head and body could be two segments held back by Nagle's algorithm: another limit.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 256);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            byte[] body = ("entry " + Long.toHexString(ledger.lengthen()) + "\n").getBytes();
            exchange.sendResponseHeaders(200, body.length);
            try (var out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
        server.start();
    }
}
