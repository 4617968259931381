// One map that all requests update in a synchronized method, with a slow step inside: java Lock.java PORT.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;

class Lock {
    private final Map<Long, Integer> counts = new HashMap<>();

    synchronized int count() throws InterruptedException {
        Thread.sleep(4);
        return counts.merge(Thread.currentThread().getId(), 1, Integer::sum);
    }

    public static void main(String[] args) throws Exception {
        Lock lock = new Lock();
        // Else head and body are two segments, and Nagle holds the second back: another limit.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 128);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            byte[] answer;
            try {
                answer = ("count " + lock.count()).getBytes();
            } catch (InterruptedException never) {
                throw new IllegalStateException(never);
            }
            exchange.sendResponseHeaders(200, answer.length);
            try (var body = exchange.getResponseBody()) {
                body.write(answer);
            }
        });
        server.start();
    }
}
