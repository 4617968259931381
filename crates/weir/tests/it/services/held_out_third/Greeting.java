// Plain sockets, where head and body are two small writes and Nagle's algorithm is on; the delayed acknowledgement is the limit: java -cp DIR Greeting PORT.
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

class Greeting {
    static void serve(Socket socket) {
        try (socket) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            OutputStream out = socket.getOutputStream();
            byte[] body = "good morning\n".getBytes();
            byte[] head = ("HTTP/1.1 200 OK\r\nContent-Length: " + body.length + "\r\n\r\n").getBytes();
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                // The blank line ends a request; none has a body.
                if (line.isEmpty()) {
                    out.write(head);
                    out.write(body);
                }
            }
        } catch (IOException gone) {
            // The client has left: so does this thread.
        }
    }

    public static void main(String[] args) throws IOException {
        ServerSocket listener = new ServerSocket(Integer.parseInt(args[0]), 256, InetAddress.getByName("127.0.0.1"));
        while (true) {
            Socket socket = listener.accept();
            socket.setTcpNoDelay(false);
            new Thread(() -> serve(socket)).start();
        }
    }
}
