{{/* Made from operator/rljob_operator/kube/process/rbac.py by `make generate`. */}}

{{- define "rljob-operator.rulesOfJobs" -}}
# the jobs; their spec is only read, except runs of experiments
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["list", "watch"]
# ttlSecondsAfterFinished
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["delete"]
# runs of experiments: to start, to suspend and to resume
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["create", "patch"]
# the experiments; their spec is only read
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments"]
  verbs: ["list", "watch"]
# the status of an experiment
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments/status"]
  verbs: ["patch"]
# runs that block its deletion, on clusters that check it
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments/finalizers"]
  verbs: ["update"]
# the status of a job
- apiGroups: ["rljob.dev"]
  resources: ["rljobs/status"]
  verbs: ["patch"]
# children that block their job's deletion, on clusters that check it
- apiGroups: ["rljob.dev"]
  resources: ["rljobs/finalizers"]
  verbs: ["update"]
# the state of members, and the owner of a name in use
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["get", "list", "watch"]
# to start, mark and end members
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["create", "patch", "delete"]
# keys and token, made once; requests to the learner carry the token
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get", "create"]
# the effective job, and the pods' names
- apiGroups: [""]
  resources: ["configmaps", "services"]
  verbs: ["get", "create", "patch"]
# checkpoints and experience; none is ever deleted
- apiGroups: [""]
  resources: ["persistentvolumeclaims"]
  verbs: ["get", "create"]
# to see which of its objects are missing, and which claims are being deleted
- apiGroups: [""]
  resources: ["configmaps", "services", "persistentvolumeclaims"]
  verbs: ["list", "watch"]
# to see which of its objects are missing, and which claims are being deleted
- apiGroups: ["networking.k8s.io"]
  resources: ["networkpolicies"]
  verbs: ["list", "watch"]
# who may reach the pods
- apiGroups: ["networking.k8s.io"]
  resources: ["networkpolicies"]
  verbs: ["get", "create", "patch", "delete"]
# to remove a finished job's data from its user's Redis
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["create"]
# events
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create"]
{{- if (.Values.config.kueue).enabled }}
# to ask Kueue for quota
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloads"]
  verbs: ["get", "list", "watch", "create", "delete"]
# to give quota back
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloads/status"]
  verbs: ["patch"]
{{- end }}
{{- end -}}

{{- define "rljob-operator.rulesOfAllJobs" -}}
# the jobs; their spec is only read, except runs of experiments
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["list", "watch"]
# ttlSecondsAfterFinished
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["delete"]
# runs of experiments: to start, to suspend and to resume
- apiGroups: ["rljob.dev"]
  resources: ["rljobs"]
  verbs: ["create", "patch"]
# the experiments; their spec is only read
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments"]
  verbs: ["list", "watch"]
# the status of an experiment
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments/status"]
  verbs: ["patch"]
# runs that block its deletion, on clusters that check it
- apiGroups: ["rljob.dev"]
  resources: ["rlexperiments/finalizers"]
  verbs: ["update"]
# the status of a job
- apiGroups: ["rljob.dev"]
  resources: ["rljobs/status"]
  verbs: ["patch"]
# children that block their job's deletion, on clusters that check it
- apiGroups: ["rljob.dev"]
  resources: ["rljobs/finalizers"]
  verbs: ["update"]
# the state of members, and the owner of a name in use
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["get", "list", "watch"]
# to start, mark and end members
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["create", "patch", "delete"]
# keys and token, made once; requests to the learner carry the token
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get", "create"]
# the effective job, and the pods' names
- apiGroups: [""]
  resources: ["configmaps", "services"]
  verbs: ["get", "create", "patch"]
# checkpoints and experience; none is ever deleted
- apiGroups: [""]
  resources: ["persistentvolumeclaims"]
  verbs: ["get", "create"]
# to see which of its objects are missing, and which claims are being deleted
- apiGroups: [""]
  resources: ["configmaps", "services", "persistentvolumeclaims"]
  verbs: ["list", "watch"]
# to see which of its objects are missing, and which claims are being deleted
- apiGroups: ["networking.k8s.io"]
  resources: ["networkpolicies"]
  verbs: ["list", "watch"]
# who may reach the pods
- apiGroups: ["networking.k8s.io"]
  resources: ["networkpolicies"]
  verbs: ["get", "create", "patch", "delete"]
# to remove a finished job's data from its user's Redis
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["create"]
# events
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create"]
# which nodes are lost
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["list", "watch"]
# which node a volume can't leave, for a message only
- apiGroups: [""]
  resources: ["persistentvolumes"]
  verbs: ["get"]
{{- if (.Values.config.kueue).enabled }}
# to ask Kueue for quota
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloads"]
  verbs: ["get", "list", "watch", "create", "delete"]
# to give quota back
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloads/status"]
  verbs: ["patch"]
{{- end }}
{{- if (.Values.config.kueue).enabled }}
# the nodes of a queue's pods
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["resourceflavors"]
  verbs: ["get"]
# the priority of a job in its queue
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloadpriorityclasses"]
  verbs: ["get"]
# the same, from its pods' class
- apiGroups: ["scheduling.k8s.io"]
  resources: ["priorityclasses"]
  verbs: ["get"]
{{- end }}
{{- end -}}

{{- define "rljob-operator.rulesOfCluster" -}}
# which nodes are lost
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["list", "watch"]
# which node a volume can't leave, for a message only
- apiGroups: [""]
  resources: ["persistentvolumes"]
  verbs: ["get"]
{{- if (.Values.config.kueue).enabled }}
# the nodes of a queue's pods
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["resourceflavors"]
  verbs: ["get"]
# the priority of a job in its queue
- apiGroups: ["kueue.x-k8s.io"]
  resources: ["workloadpriorityclasses"]
  verbs: ["get"]
# the same, from its pods' class
- apiGroups: ["scheduling.k8s.io"]
  resources: ["priorityclasses"]
  verbs: ["get"]
{{- end }}
{{- end -}}

{{- define "rljob-operator.rulesOfOperator" -}}
# which replica leads
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["get", "create", "patch"]
{{- end -}}
