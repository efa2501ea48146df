package javaregex

// Compile reads a pattern with the meaning of java.util.regex.Pattern.compile(pattern) and prepares it for whole-name
// matches. The error is an *Error.
func Compile(pattern string, opts ...Option) (*Pattern, error) {
	return nil, &Error{Construct: pattern, Message: "not supported yet", Unsupported: true}
}

// Matches tells whether the whole name matches. The error is a *TimeLimitError; it means that nothing was decided.
func (p *Pattern) Matches(name string) (bool, error) { return p.literal == name, nil }

func quote(s string) string { return "\"" + s + "\"" }
