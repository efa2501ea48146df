package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// family is a metric's name, type and labels.
type family struct {
	Name, Type string
	Labels     []string
}

// TestMetricsStandInTheirPageAsInTheCode compares docs/metrics.md with what the code makes.
func TestMetricsStandInTheirPageAsInTheCode(t *testing.T) {
	t.Parallel()
	documented := map[string]family{}
	page := read(t, "docs", "metrics.md")
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\|([a-z, ]*)\\|")
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		f := family{Name: m[1], Type: m[2]}
		for label := range strings.SplitSeq(m[3], ",") {
			if label = strings.TrimSpace(label); label != "" {
				f.Labels = append(f.Labels, label)
			}
		}
		slices.Sort(f.Labels)
		require.NotContains(t, documented, f.Name, "twice in docs/metrics.md")
		documented[f.Name] = f
	}
	inCode := map[string]family{}
	root := repo(t)
	for _, folder := range []string{"internal", "cmd"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, f := range families(t, path) {
				require.NotContainsf(t, inCode, f.Name, "%s makes it a second time", path)
				inCode[f.Name] = f
			}
			return nil
		}))
	}
	require.Greater(t, len(inCode), 25, "the metrics of the code were not found")
	require.Equal(t, inCode, documented, "expected: the code; actual: docs/metrics.md")

	// What other pages name must exist; a histogram has three series.
	for _, name := range []string{"README.md", "docs/runbook.md", "docs/metrics.md", "docs/data-path.md", "docs/conditions.md", "docs/testing.md"} {
		for _, metric := range regexp.MustCompile(`mirrorflow_(?:[a-z]+_)+[a-z]+`).FindAllString(read(t, filepath.FromSlash(name)), -1) {
			base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(metric, "")
			require.Truef(t, inCode[metric].Name != "" || inCode[base].Type == "histogram", "%s names %s, which does not exist", name, metric)
		}
	}
}

// families returns what a file makes with prometheus.New…, directly or by closures that are given the name first.
func families(t *testing.T, path string) []family {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	if !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		return i.Path.Value == `"github.com/prometheus/client_golang/prometheus"`
	}) {
		return nil
	}
	var constant []string             // labels of a variable prometheus.Labels
	helpers := map[string]helper{}    // closures
	bodies := map[*ast.FuncLit]bool{} // theirs
	ast.Inspect(file, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Rhs) != 1 {
			return true
		}
		switch right := assign.Rhs[0].(type) {
		case *ast.CompositeLit:
			if of(right.Type) == "Labels" {
				constant = keys(right)
			}
		case *ast.FuncLit:
			var h helper
			ast.Inspect(right, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if kind := made(n); kind != "" {
						h.kind = kind
					}
				case *ast.CompositeLit:
					if strings.HasSuffix(of(n.Type), "Opts") {
						h.prefix = prefix(n)
					}
				}
				return true
			})
			if name, ok := assign.Lhs[0].(*ast.Ident); ok && h.prefix != "" {
				helpers[name.Name], bodies[right] = h, true
				return false
			}
		}
		return true
	})
	var all []family
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok && bodies[lit] {
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if name, ok := call.Fun.(*ast.Ident); ok && helpers[name.Name].kind != "" {
			f := family{Name: helpers[name.Name].prefix + text(call.Args[0]), Type: helpers[name.Name].kind}
			for _, a := range call.Args[2:] {
				f.Labels = append(f.Labels, text(a))
			}
			all = append(all, f)
			return false
		}
		kind := made(call)
		if kind == "" {
			return true
		}
		f := family{Type: kind}
		options := call.Args[0]
		// prometheus.GaugeOpts(opts("name", …)): a conversion.
		if conversion, ok := options.(*ast.CallExpr); ok && strings.HasSuffix(of(conversion.Fun), "Opts") {
			options = conversion.Args[0]
		}
		switch o := options.(type) {
		case *ast.CallExpr:
			name, ok := o.Fun.(*ast.Ident)
			require.Truef(t, ok && helpers[name.Name].prefix != "", "%s: the name of a metric was not understood", path)
			f.Name = helpers[name.Name].prefix + text(o.Args[0])
		case *ast.CompositeLit:
			f.Name = prefix(o) + text(field(o, "Name"))
			switch labels := field(o, "ConstLabels").(type) {
			case *ast.CompositeLit:
				f.Labels = keys(labels)
			case *ast.Ident:
				f.Labels = slices.Clone(constant)
			}
		default:
			require.Failf(t, "not understood", "%s: the options of a metric", path)
		}
		if len(call.Args) > 1 {
			for _, l := range call.Args[1].(*ast.CompositeLit).Elts {
				f.Labels = append(f.Labels, text(l))
			}
		}
		all = append(all, f)
		return false
	})
	for i := range all {
		slices.Sort(all[i].Labels)
	}
	return all
}

// helper is a closure that makes options or a whole metric.
type helper struct{ prefix, kind string }

// of returns X of prometheus.X, "" for anything else.
func of(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if p, ok := s.X.(*ast.Ident); ok && p.Name == "prometheus" {
			return s.Sel.Name
		}
	}
	return ""
}

// made returns the type of metric that a call makes, "" if none.
func made(call *ast.CallExpr) string {
	m := regexp.MustCompile(`^New(Counter|Gauge|Histogram|Summary)(Vec|Func)?$`).FindStringSubmatch(of(call.Fun))
	if m == nil {
		return ""
	}
	return strings.ToLower(m[1])
}

func field(lit *ast.CompositeLit, name string) ast.Expr {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == name {
			return kv.Value
		}
	}
	return nil
}

func prefix(lit *ast.CompositeLit) string {
	p := ""
	for _, name := range []string{"Namespace", "Subsystem"} {
		if part := text(field(lit, name)); part != "" {
			p += part + "_"
		}
	}
	return p
}

func keys(lit *ast.CompositeLit) []string {
	var all []string
	for _, e := range lit.Elts {
		all = append(all, text(e.(*ast.KeyValueExpr).Key))
	}
	return all
}

// text returns the value of a string literal, "" for anything else.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}
