// Command oracle runs the library that kube-apiserver uses for server-side apply, one JSON request a line.
// The schema package is made by the test from client-go's generated schema.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"oracle/schema"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

type sameVersion struct{}

func (sameVersion) Convert(o *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return o, nil
}

func (sameVersion) IsMissingVersionError(error) bool { return false }

type request struct {
	Op, Manager string
	Force       bool
	Obj         map[string]any
}

// withoutNulls does what the API server's conversion to Go types does between two writes.
func withoutNulls(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range t {
			if x != nil {
				out[k] = withoutNulls(x)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, x := range t {
			out = append(out, withoutNulls(x))
		}
		return out
	}
	return v
}

func main() {
	kind := schema.Parser().Type(os.Args[1])
	updater := (&merge.UpdaterBuilder{Converter: sameVersion{}, ReturnInputOnNoop: true}).BuildUpdater()
	var live *typed.TypedValue
	var owners fieldpath.ManagedFields
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<24)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		given, err := kind.FromUnstructured(r.Obj)
		if err == nil {
			copied := owners.Copy()
			var out *typed.TypedValue
			switch r.Op {
			case "start":
				out, copied = given, fieldpath.ManagedFields{}
			case "apply":
				out, copied, err = updater.Apply(live, given, "v1", copied, r.Manager, r.Force)
			default:
				out, copied, err = updater.Update(live, given, "v1", copied, r.Manager)
			}
			if err == nil {
				owners = copied
				if out != nil {
					live, _ = kind.FromUnstructured(withoutNulls(out.AsValue().Unstructured()))
				}
			}
		}
		sets := map[string]json.RawMessage{}
		for name, owned := range owners {
			sets[name], _ = owned.Set().ToJSON()
		}
		answer, failed := json.Marshal(map[string]any{
			"refused": err != nil, "obj": live.AsValue().Unstructured(), "managers": sets,
		})
		if failed != nil {
			panic(failed)
		}
		fmt.Println(string(answer))
	}
}
