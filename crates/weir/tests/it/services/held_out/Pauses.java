// A heap that is nearly full of live objects, so that each request's garbage stops all threads: java -Xmx160m -XX:+UseSerialGC Pauses.java PORT.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;

class Pauses {
    record Node(Object left, Object right, long value) {}

    static Object tree(int depth) {
        return depth == 0 ? null : new Node(tree(depth - 1), tree(depth - 1), depth);
    }

    public static void main(String[] args) throws Exception {
        List<Object> live = new ArrayList<>();
        for (int i = 0; i < 24; i++) {
            live.add(tree(17));
        }
        // Else head and body are two segments, and Nagle holds the second back: another limit.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 128);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            // One subtree is replaced: the old one is garbage among the live.
            synchronized (live) {
                live.set(ThreadLocalRandom.current().nextInt(live.size()), tree(17));
            }
            exchange.sendResponseHeaders(200, 5);
            try (var body = exchange.getResponseBody()) {
                body.write("hello".getBytes());
            }
        });
        server.start();
    }
}
