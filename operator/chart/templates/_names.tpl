{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "operator.name" -}}
{{- if eq .Release.Name "karmada-installer" }}karmada-installer{{ else }}karmada-installer-{{ .Release.Name | trunc 45 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "operator.selector" -}}
app.kubernetes.io/name: karmada-installer-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: karmada-installer
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "operator.namespaces" -}}
{{- prepend .Values.namespaces .Release.Namespace | uniq | toJson }}
{{- end }}

{{/* Account of runs: that of the operator, unless they have pods of their own. */}}
{{- define "operator.runs" -}}
{{ include "operator.name" . }}{{ if eq .Values.runs.executor "Jobs" }}-runs{{ end }}
{{- end }}

{{/* Binding of a role to the account of its name; a list of the root, "Cluster" or "", the name, and its namespace. */}}
{{- define "operator.binding" -}}
{{- $root := index . 0 }}
{{- $name := index . 2 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 1 }}RoleBinding
metadata:
  name: {{ $name }}
  {{- with index . 3 }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "operator.labels" $root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ index . 1 }}Role, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}]
{{- end }}

{{- define "operator.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag }}{{ end }}
{{- end }}

{{/* What pods of the operator and of runs have in common. */}}
{{- define "operator.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "operator.container" -}}
image: {{ include "operator.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "operator.volumes" -}}
# In memory: keys and kubeconfigs of runs touch no disk.
- name: runs
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.runs.memory }}}
- name: cache
  {{- if .Values.cache.existingClaim }}
  persistentVolumeClaim: {claimName: {{ .Values.cache.existingClaim }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ .Values.cache.size }}}
  {{- end }}
{{- end }}

{{/* MiB of a quantity of memory; empty for what is none. */}}
{{- define "operator.mebibytes" -}}
{{- $text := toString . }}
{{- $number := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" $text }}
{{- $mebi := 1048576.0 }}
{{- $units := dict "Ki" (divf 1 1024) "Mi" 1.0 "Gi" 1024.0 "Ti" (mulf 1024 1024) "" (divf 1 $mebi) }}
{{- $units = merge $units (dict "k" (divf 1e3 $mebi) "M" (divf 1e6 $mebi) "G" (divf 1e9 $mebi) "T" (divf 1e12 $mebi)) }}
{{- $unit := trimPrefix $number $text }}
{{- if and $number (hasKey $units $unit) }}{{ mulf (float64 $number) (get $units $unit) }}{{ end -}}
{{- end }}

{{/* Nothing, or a refusal: a pod that meets its limit ends with all runs. Runs that are Jobs have limits of their own. */}}
{{- define "operator.room" -}}
{{- $runs := .Values.runs }}
{{- $operator := 96 }}
{{- $each := 220 }}
{{- $most := add $runs.changes $runs.deletions $runs.restores $runs.backups 1 }}
{{- $given := dig "limits" "memory" "" (.Values.resources | default dict) }}
{{- $limit := include "operator.mebibytes" $given }}
{{- $folders := include "operator.mebibytes" $runs.memory }}
{{- if and (eq $runs.executor "Processes") $limit $folders }}
{{- $needed := addf $operator (mulf $each $most) (float64 $folders) | ceil | int }}
{{- if lt (float64 $limit) (float64 $needed) }}
{{- $parts := printf "%dMi of the operator, %s of runs.memory, and %dMi for each of" $operator $runs.memory $each }}
{{- $which := "runs.changes + runs.deletions + runs.restores + runs.backups + 1" }}
{{- $remedy := printf "Set resources.limits.memory=%dMi, fewer runs, or runs.executor=Jobs." $needed }}
{{- printf "resources.limits.memory is %v, and %dMi are needed: %s %d runs (%s). %s" $given $needed $parts $most $which $remedy | fail }}
{{- end }}
{{- end }}
{{- end }}
