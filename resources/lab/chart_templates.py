"""The templates that every stand-in chart holds; `lab.json` in the chart says what they render."""

from __future__ import annotations

HELPERS = r"""
{{- /* What stands at a path of the values, as {"v": ..}; v is null where nothing is set. */ -}}
{{- define "lab.at" -}}
{{- $node := .values -}}
{{- $missing := false -}}
{{- range .path -}}
{{- if and (kindIs "map" $node) (hasKey $node .) -}}
{{- $node = get $node . -}}
{{- else -}}
{{- $node = dict -}}
{{- $missing = true -}}
{{- end -}}
{{- end -}}
{{- if $missing -}}{"v":null}{{- else -}}{{- toJson (dict "v" $node) -}}{{- end -}}
{{- end -}}

{{- /* A knob's value: what the values hold at its path; its default where it has no path or keeps it over an empty list. */ -}}
{{- define "lab.knob" -}}
{{- $knob := .knob -}}
{{- if not $knob.path -}}
{{- toJson (dict "v" $knob.default) -}}
{{- else -}}
{{- $v := get (fromJson (include "lab.at" (dict "values" .values "path" $knob.path))) "v" -}}
{{- if and (eq $knob.empty "keeps default") (kindIs "slice" $v) (not $v) -}}
{{- $v = $knob.default -}}
{{- end -}}
{{- if and $knob.falls_back (kindIs "invalid" $v) -}}{{- $v = $knob.default -}}{{- end -}}
{{- toJson (dict "v" $v) -}}
{{- end -}}
{{- end -}}

{{- define "lab.selector" -}}
{{- $v := get (fromJson (include "lab.knob" (dict "values" .values "knob" .knob))) "v" | default dict -}}
{{- if .knob.fixed -}}{{- $v = mergeOverwrite (deepCopy $v) .knob.fixed -}}{{- end -}}
{{- toJson (dict "v" $v) -}}
{{- end -}}

{{- define "lab.tolerations" -}}
{{- $v := get (fromJson (include "lab.knob" (dict "values" .values "knob" .knob))) "v" -}}
{{- $fixed := .knob.fixed | default list -}}
{{- if and (eq .knob.empty "drops fixed") (kindIs "slice" $v) (not $v) -}}{{- $fixed = list -}}{{- end -}}
{{- toJson (dict "v" (concat ($v | default list) $fixed)) -}}
{{- end -}}

{{- define "lab.affinity" -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $v := get (fromJson (include "lab.knob" (dict "values" .values "knob" .knob))) "v" | default dict -}}
{{- if eq .knob.form "label lists" -}}
{{- $terms := list -}}
{{- range ($v.keys | default list) -}}
{{- $terms = append $terms (dict "matchExpressions" (list (dict "key" . "operator" "In" "values" ($v.values | default list)))) -}}
{{- end -}}
{{- $v = dict -}}
{{- if $terms -}}{{- $v = dict "nodeAffinity" (dict $required (dict "nodeSelectorTerms" $terms)) -}}{{- end -}}
{{- end -}}
{{- if and $v (eq .knob.form "node affinity") -}}{{- $v = dict "nodeAffinity" $v -}}{{- end -}}
{{- if .knob.fixed -}}
{{- $node := deepCopy (get $v "nodeAffinity" | default dict) -}}
{{- $terms := get (get $node $required | default dict) "nodeSelectorTerms" | default list -}}
{{- $last := dict -}}
{{- if $terms -}}{{- $last = last $terms -}}{{- $terms = initial $terms -}}{{- end -}}
{{- $expressions := concat (get $last "matchExpressions" | default list) .knob.fixed -}}
{{- $terms = append $terms (set (deepCopy $last) "matchExpressions" $expressions) -}}
{{- $v = set (deepCopy $v) "nodeAffinity" (set $node $required (dict "nodeSelectorTerms" $terms)) -}}
{{- end -}}
{{- toJson (dict "v" $v) -}}
{{- end -}}

{{- define "lab.settings" -}}
{{- $found := dict -}}
{{- $values := .values -}}
{{- range .settings -}}
{{- $v := get (fromJson (include "lab.at" (dict "values" $values "path" .path))) "v" -}}
{{- if not (kindIs "invalid" $v) -}}{{- $_ := set $found .name (toJson $v) -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "lab.podspec" -}}
{{- $w := .w -}}
{{- $container := dict "name" "main" "image" $w.image -}}
{{- if $w.ports -}}{{- $_ := set $container "ports" $w.ports -}}{{- end -}}
{{- if $w.cpu -}}{{- $_ := set $container "resources" (dict "requests" (dict "cpu" $w.cpu)) -}}{{- end -}}
{{- $spec := dict "containers" (list $container) -}}
{{- if and (not $w.namespace) (ne $w.kind "Job") -}}{{- $_ := set $spec "serviceAccountName" .release -}}{{- end -}}
{{- if $w.host_network -}}{{- $_ := set $spec "hostNetwork" true -}}{{- end -}}
{{- if $w.priority_class -}}{{- $_ := set $spec "priorityClassName" $w.priority_class -}}{{- end -}}
{{- $selector := get (fromJson (include "lab.selector" (dict "values" .values "knob" $w.node_selector))) "v" -}}
{{- if $selector -}}{{- $_ := set $spec "nodeSelector" $selector -}}{{- end -}}
{{- $affinity := get (fromJson (include "lab.affinity" (dict "values" .values "knob" $w.affinity))) "v" -}}
{{- if $affinity -}}{{- $_ := set $spec "affinity" $affinity -}}{{- end -}}
{{- $tolerations := get (fromJson (include "lab.tolerations" (dict "values" .values "knob" $w.tolerations))) "v" -}}
{{- if $tolerations -}}{{- $_ := set $spec "tolerations" $tolerations -}}{{- end -}}
{{- if eq $w.kind "Job" -}}{{- $_ := set $spec "restartPolicy" "Never" -}}{{- end -}}
{{- toJson $spec -}}
{{- end -}}
"""

WORKLOADS = r"""
{{- $lab := .Files.Get "lab.json" | fromJson }}
{{- $values := .Values.AsMap }}
{{- $settings := include "lab.settings" (dict "values" $values "settings" $lab.settings) }}
{{- range $w := $lab.workloads }}
{{- $on := true }}
{{- if $w.enabled.path }}
{{- $given := get (fromJson (include "lab.at" (dict "values" $values "path" $w.enabled.path))) "v" }}
{{- if $given }}{{ $on = true }}{{ else }}{{ $on = false }}{{ end }}
{{- end }}
{{- if $w.guard }}
{{- $told := get (fromJson (include "lab.at" (dict "values" $values "path" $w.guard.path))) "v" }}
{{- if not (has $told $w.guard.values) }}{{ $on = false }}{{ end }}
{{- end }}
{{- if $on }}
{{- $annotations := deepCopy $w.annotations }}
{{- if $w.tells_settings }}{{ $_ := set $annotations "lab.modelplane.ai/settings" $settings }}{{ end }}
---
apiVersion: {{ if eq $w.kind "Job" }}batch/v1{{ else }}apps/v1{{ end }}
kind: {{ $w.kind }}
metadata:
  name: {{ $w.name | quote }}
  namespace: {{ $w.namespace | default $.Release.Namespace | quote }}
  labels: {{ toJson $w.labels }}
  {{- if $w.hook }}
  annotations:
    "helm.sh/hook": {{ $w.hook | quote }}
    "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"
  {{- end }}
spec:
  {{- if eq $w.kind "Job" }}
  backoffLimit: 6
  {{- else }}
  selector:
    matchLabels: {{ toJson $w.selector }}
  {{- end }}
  {{- if or (eq $w.kind "Deployment") (eq $w.kind "StatefulSet") }}
  replicas: 1
  {{- end }}
  {{- if eq $w.kind "StatefulSet" }}
  serviceName: {{ $w.name | quote }}
  {{- end }}
  template:
    metadata:
      labels: {{ toJson $w.labels }}
      annotations: {{ toJson $annotations }}
    spec: {{ include "lab.podspec" (dict "values" $values "w" $w "release" $.Release.Name) }}
{{- end }}
{{- end }}
"""

OBJECTS = r"""
{{- $lab := .Files.Get "lab.json" | fromJson }}
{{- $values := .Values.AsMap }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Release.Name | quote }}
  namespace: {{ .Release.Namespace | quote }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ printf "%s-settings" .Release.Name | quote }}
  namespace: {{ .Release.Namespace | quote }}
data: {{ include "lab.settings" (dict "values" $values "settings" $lab.settings) }}
{{- range $lab.priority_classes }}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: {{ . | quote }}
value: 1000
{{- end }}
{{- range $lab.device_classes }}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: {{ .name | quote }}
spec:
  selectors:
    - cel:
        expression: {{ .expression | quote }}
{{- end }}
{{- range $lab.resources }}
---
apiVersion: {{ .apiVersion }}
kind: {{ .kind }}
metadata:
  name: {{ .name | quote }}
  {{- if .namespaced }}
  namespace: {{ $.Release.Namespace | quote }}
  {{- end }}
{{- $spec := $values }}
{{- if .root }}{{ $spec = get (fromJson (include "lab.at" (dict "values" $values "path" .root))) "v" | default dict }}{{ end }}
spec: {{ toJson $spec }}
{{- end }}
"""
