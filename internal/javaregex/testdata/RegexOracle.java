import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

// Answers what java.util.regex says. Each line holds a pattern and names, base64 of UTF-8, separated by blanks ("-" is the
// empty string). Each answer line is "E" for a syntax error (with the message), or one character a name: 1 match, 0 none,
// T too much work, S stack overflow.
public class RegexOracle {
    static final long BUDGET = 300_000;

    static final class OutOfBudget extends RuntimeException {
        OutOfBudget() { super(null, null, false, false); }
    }

    static final class Counted implements CharSequence {
        private final String s;
        private long left = BUDGET;

        Counted(String s) { this.s = s; }

        @Override public int length() { return s.length(); }

        @Override public char charAt(int i) {
            if (--left < 0) {
                throw new OutOfBudget();
            }
            return s.charAt(i);
        }

        @Override public CharSequence subSequence(int a, int b) { return s.substring(a, b); }

        @Override public String toString() { return s; }
    }

    static String decode(String field) {
        return field.equals("-") ? "" : new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ");
            StringBuilder answer = new StringBuilder();
            try {
                Pattern p = Pattern.compile(decode(fields[0]));
                for (int i = 1; i < fields.length; i++) {
                    try {
                        answer.append(p.matcher(new Counted(decode(fields[i]))).matches() ? '1' : '0');
                    } catch (OutOfBudget e) {
                        answer.append('T');
                    } catch (StackOverflowError e) {
                        answer.append('S');
                    }
                }
            } catch (PatternSyntaxException e) {
                answer.setLength(0);
                answer.append("E ").append(e.getDescription());
            } catch (RuntimeException | StackOverflowError e) {
                answer.setLength(0);
                answer.append("E ").append(e.getClass().getName());
            }
            out.println(answer.toString().replace('\n', ' '));
        }
        out.flush();
    }
}
