// An attic full of small things that live for ever, and a housekeeper that calls System.gc() again and again; full collections of some 250 ms stop all threads; these pauses are the limit: Attic PORT.
import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;

public class Attic {
    static final class Thing {
        final Thing left, right;

        Thing(Thing left, Thing right) {
            this.left = left;
            this.right = right;
        }
    }

    static Thing[] attic = new Thing[128];

    static Thing stow(int depth) {
        return depth == 0 ? null : new Thing(stow(depth - 1), stow(depth - 1));
    }

    static void serve(Socket socket) {
        try (socket) {
            socket.setTcpNoDelay(true);
            BufferedReader in = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.ISO_8859_1));
            OutputStream out = socket.getOutputStream();
            byte[] answer = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nup the attic".getBytes(StandardCharsets.ISO_8859_1);
            for (String line; (line = in.readLine()) != null; ) {
                // The blank line ends a request; none has a body. A request takes 5 ms besides the pauses.
                if (!line.isEmpty()) continue;
                Thread.sleep(5);
                out.write(answer);
            }
        } catch (IOException | InterruptedException gone) {
            // The client has gone.
        }
    }

    static void keepHouse() {
        try {
            for (;;) {
                Thread.sleep(50);
                System.gc();
            }
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < attic.length; i++) attic[i] = stow(16);
        Thread housekeeper = new Thread(Attic::keepHouse, "housekeeper");
        housekeeper.setDaemon(true);
        housekeeper.start();
        try (ServerSocket listener = new ServerSocket(Integer.parseInt(arguments[0]), 512, InetAddress.getByName("127.0.0.1"))) {
            for (;;) {
                Socket socket = listener.accept();
                new Thread(() -> serve(socket)).start();
            }
        }
    }
}
