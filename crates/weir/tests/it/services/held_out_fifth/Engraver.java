// A thread for each connection, but all hand their plate to one engraver thread, which computes some 3 ms for each; its CPU is the limit: Engraver PORT.
import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.*;

public class Engraver {
    // As with many a rendering library: not thread-safe, so one thread owns it.
    static final ExecutorService BENCH = Executors.newSingleThreadExecutor(work -> {
        Thread thread = new Thread(work, "engraver");
        thread.setDaemon(true);
        return thread;
    });

    static long engrave(long seed) {
        long x = seed | 1;
        for (int i = 0; i < 1_300_000; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static void serve(Socket socket) {
        try (socket) {
            socket.setTcpNoDelay(true);
            BufferedReader in = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.ISO_8859_1));
            OutputStream out = socket.getOutputStream();
            for (String line; (line = in.readLine()) != null; ) {
                // The blank line ends a request; none has a body.
                if (!line.isEmpty()) continue;
                long seed = System.nanoTime();
                String body = "plate " + BENCH.submit(() -> engrave(seed)).get() + "\n";
                out.write(("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " + body.length() + "\r\n\r\n" + body)
                        .getBytes(StandardCharsets.ISO_8859_1));
            }
        } catch (IOException | InterruptedException | ExecutionException gone) {
            // The client has gone.
        }
    }

    public static void main(String[] arguments) throws Exception {
        // Let the compiler see the loop before the first client comes.
        for (int i = 0; i < 30; i++) BENCH.submit(() -> engrave(System.nanoTime())).get();
        try (ServerSocket listener = new ServerSocket(Integer.parseInt(arguments[0]), 512, InetAddress.getByName("127.0.0.1"))) {
            for (;;) {
                Socket socket = listener.accept();
                new Thread(() -> serve(socket)).start();
            }
        }
    }
}
